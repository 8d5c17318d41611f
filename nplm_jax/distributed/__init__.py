"""Devices and processes: meshes, sharding, collectives and JAX settings."""
