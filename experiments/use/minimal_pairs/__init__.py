"""A study of minimal pairs, that is, of which of two sentences is more likely under a model."""
