"""Studies of accelerators."""
