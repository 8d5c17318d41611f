"""Cheaper gradients: speed and perplexity."""
