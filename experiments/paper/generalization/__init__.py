"""An isolated test of the paper's claim, using a grammar with known entropy."""
