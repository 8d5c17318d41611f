"""Distributes training and scoring over devices and processes, and checks the JAX settings."""
