"""Trains and evaluates single runs. Loads, packs and imports runs, and scores text with finished runs."""
