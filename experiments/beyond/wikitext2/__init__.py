"""Perplexities on the published words of WikiText-2."""
