"""Test perplexity against minutes of training, and models that adapt."""
