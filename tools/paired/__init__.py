"""Races the training steps of two checkouts of this repository."""
