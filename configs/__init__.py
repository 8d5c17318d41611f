"""Experiment configs, one file per corpus. default.py has every key."""
