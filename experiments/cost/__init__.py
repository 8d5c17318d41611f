"""Studies of time and memory: speed, scale and accelerators."""
