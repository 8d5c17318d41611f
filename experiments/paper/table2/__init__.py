"""The paper's Table 2."""
