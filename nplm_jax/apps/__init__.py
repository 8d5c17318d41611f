"""Applications of trained models. Each is a self-contained package on top of the core."""
