"""The studies of this repository, one folder per study."""

import nplm_jax.cli  # noqa: F401 (sets XLA's log level before a study imports JAX)
