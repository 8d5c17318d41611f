"""One folder a study."""

import nplm_jax.cli  # noqa: F401 (sets what XLA logs, before a study imports JAX)
