"""Cheaper gradients: speed against perplexity."""
