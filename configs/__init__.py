"""The configs of experiments: one file per corpus; default.py has every key."""
