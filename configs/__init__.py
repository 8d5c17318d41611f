"""Experiment configs, one file per corpus. The config in default.py contains every key."""
