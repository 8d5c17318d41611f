"""Trained models in a local page: what may follow a text, how much each word surprises, neighbours, samples."""
