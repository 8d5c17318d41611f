"""One file a corpus; default.py has every key."""
