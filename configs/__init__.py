"""The configs of experiments: one file a corpus; default.py has every key."""
