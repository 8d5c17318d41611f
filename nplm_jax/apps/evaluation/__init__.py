"""Integration with lm-evaluation-harness."""
