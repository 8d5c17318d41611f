"""Applications of trained models. Each application is a self-contained package that uses the core."""
