"""Time and memory: speed, scale and accelerators."""
