"""Section 5 of the paper: what it leaves to later work."""
