"""The default values of all keys, from `nplm_jax.config.settings`. Other configs override some of these values."""

from ml_collections import ConfigDict

from nplm_jax.config import settings as config


def get_config() -> ConfigDict:
    """Returns the complete, locked config."""
    return config.default_config()
