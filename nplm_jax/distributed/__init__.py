"""Devices and processes: meshes, placement, collectives."""
