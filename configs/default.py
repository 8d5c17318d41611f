"""The defaults of every key; `nplm_jax.config` has them, with their meanings. Other configs change some values."""

from ml_collections import ConfigDict

from nplm_jax import config


def get_config() -> ConfigDict:
    """Returns the complete, locked config."""
    return config.default_config()
