"""Errors, files, names and progress bars."""
