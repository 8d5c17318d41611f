"""Helpers used by every subpackage: errors, files, finite checks, text, functions of networks."""
