"""Devices and processes: meshes, sharding, collectives."""
