"""An isolated test of the paper's claim on a grammar with known entropy."""
