"""Tokenizers, configured by `corpus.*` and saved with each run."""
