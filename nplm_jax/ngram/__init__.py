"""Estimates, imports, prunes, quantizes and stores count-based language models (section 4.1)."""
