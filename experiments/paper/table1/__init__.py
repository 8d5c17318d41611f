"""The paper's Table 1."""
