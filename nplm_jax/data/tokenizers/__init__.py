"""Text to tokens and back: a tokenizer is built from `corpus.*`, saved with a run, and loaded with it."""
