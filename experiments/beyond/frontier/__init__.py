"""Test perplexity as a function of training time, and models that adapt."""
