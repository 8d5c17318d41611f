"""Models in lm-evaluation-harness."""
