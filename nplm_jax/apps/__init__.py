"""Applications of trained models, each a self-contained package that uses the core."""
