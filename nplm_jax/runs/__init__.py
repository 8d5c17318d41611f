"""Runs single experiments; loads, packs and imports runs, and scores text with finished runs."""
