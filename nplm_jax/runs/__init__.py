"""Runs a single experiment: its folder, session, training and results."""
