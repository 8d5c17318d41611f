"""Errors, files, numbers and text: used by every room."""
