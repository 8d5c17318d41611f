"""Devices and processes: meshes, sharding, collectives, and the settings of JAX."""
