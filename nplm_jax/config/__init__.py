"""Experiment settings, config keys, the component registry and plug-ins. Does not import JAX."""
