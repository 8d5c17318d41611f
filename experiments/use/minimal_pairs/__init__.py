"""Minimal pairs of sentences: which of two a trained model finds likelier."""
