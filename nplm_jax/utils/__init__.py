"""Helpers for errors, files, names and progress bars."""
