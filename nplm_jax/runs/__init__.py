"""Runs a single experiment; loads, packs, imports and scores with finished ones."""
