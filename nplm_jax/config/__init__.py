"""Experiment settings, config keys, the component registry and plug-ins. This package does not import JAX."""
