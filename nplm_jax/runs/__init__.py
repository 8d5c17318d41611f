"""Runs a single experiment, and loads, packs, imports and scores with finished runs."""
