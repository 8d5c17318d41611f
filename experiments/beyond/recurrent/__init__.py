"""Recurrent networks on Brown, compared with window networks and count-based models."""
