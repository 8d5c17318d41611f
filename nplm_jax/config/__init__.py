"""The keys of an experiment: settings, the registry of parts, plug-ins, and checks of values. Imports no JAX."""
