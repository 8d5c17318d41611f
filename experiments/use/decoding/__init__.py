"""Word error rates of beam search with different models."""
