"""Minimal pairs: which of two sentences is more likely under a model."""
