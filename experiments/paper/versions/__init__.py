"""A comparison of the same runs on two JAX versions."""
