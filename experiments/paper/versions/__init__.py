"""The same runs on two JAX versions."""
