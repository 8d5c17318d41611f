"""The version of jaxlib, and the settings of JAX on which types and random numbers depend.

Environment variables and notebooks change the settings.
"""

import sys
from collections.abc import Mapping
from typing import Any

import jax
import jaxlib

from nplm_jax.utils.errors import BadInput, first_line, require

REQUIRED: Mapping[str, Any] = {
    'jax_enable_x64': False,
    'jax_numpy_dtype_promotion': 'standard',
    'jax_default_prng_impl': 'threefry2x32',
    'jax_threefry_partitionable': True,
    'jax_random_seed_offset': 0,
    'jax_high_dynamic_range_gumbel': False,
}


def require_correct_jaxlib() -> None:
    """Raises BadInput for the release of jaxlib that computes wrong results on CPUs (jax #39103)."""
    advice = 'computes wrong results on CPUs; install another version: pip install "jax!=0.10.2" "jaxlib!=0.10.2"'
    require(jaxlib.__version__ != '0.10.2', 'jaxlib', jaxlib.__version__, advice)


def pin() -> None:
    """Sets the required settings in this process, and names on stderr those that were set otherwise.

    Raises:
        BadInput: The installed jaxlib computes wrong results.
    """
    require_correct_jaxlib()
    for name, value in _others().items():
        print(f'{name.upper()}={value}: ignored; runs use {name}={REQUIRED[name]}', file=sys.stderr)
        jax.config.update(name, REQUIRED[name])


def check() -> None:
    """Starts JAX, and changes no setting.

    Raises:
        BadInput: A setting has another value, the installed jaxlib computes wrong results, or JAX_PLATFORMS names a
            platform that JAX cannot use.
    """
    require_correct_jaxlib()
    for name, value in _others().items():
        allowed = f'must be {REQUIRED[name]!r}: jax.config.update({name!r}, {REQUIRED[name]!r})'
        require(False, name, value, allowed)
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:
        platforms = jax.config.jax_platforms  # type: ignore[attr-defined]
        raise BadInput('JAX_PLATFORMS', f'cannot be used ({first_line(error)})', value=platforms) from None


def _others() -> dict[str, Any]:
    """Returns the settings that are not as required; one that this version of JAX does not have is."""
    values = {name: getattr(jax.config, name, value) for name, value in REQUIRED.items()}
    values = {name: getattr(value, 'value', value) for name, value in values.items()}  # of an enum
    return {name: value for name, value in values.items() if value != REQUIRED[name]}
