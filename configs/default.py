"""The default values of all keys, from `nplm_jax.config.settings`. Other configs override some of these values."""

from ml_collections import ConfigDict

from nplm_jax.config import settings as config


def get_config() -> ConfigDict:
    """Returns the config with the default value of every key. It is locked against new keys."""
    return config.default_config()
