"""Word error rates of beam searches with different models."""
