"""Checks the version of jaxlib, and the JAX settings that affect dtypes, random numbers and results.

Environment variables or a notebook may have changed these settings.
"""

import logging
import pathlib
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
UNUSABLE = {  # jaxlib release -> defect
    '0.10.2': 'computes wrong results on CPUs',  # jax #39103
    '0.11.1': 'copies all outputs of a scan at each step',  # jax #40101: 3.6 s instead of 2 ms
}


def require_usable_jaxlib() -> None:
    """Raises BadInput if the installed jaxlib is in UNUSABLE."""
    version = jaxlib.__version__
    others = ','.join(f'!={release}' for release in UNUSABLE)
    advice = f'{UNUSABLE.get(version)}; install another version: pip install "jax{others}" "jaxlib{others}"'
    require(version not in UNUSABLE, 'jaxlib', version, advice)


def pin() -> None:
    """Applies the required settings in this process, and reports on stderr which values were replaced.

    Raises:
        BadInput: The installed jaxlib is unusable.
    """
    require_usable_jaxlib()
    for name, value in _others().items():
        print(f'{name.upper()}={value}: is ignored; runs use {name}={REQUIRED[name]}', file=sys.stderr)
        jax.config.update(name, REQUIRED[name])


def require_pinned() -> None:
    """Checks the settings without changing them, and initializes JAX.

    Raises:
        BadInput: A setting has the wrong value, the installed jaxlib is unusable, or JAX_PLATFORMS names an
            unavailable platform.
    """
    require_usable_jaxlib()
    for name, value in _others().items():
        allowed = f'must be {REQUIRED[name]!r}: call jax.config.update({name!r}, {REQUIRED[name]!r})'
        require(False, name, value, allowed)
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:
        platforms = jax.config.jax_platforms  # type: ignore[attr-defined]
        raise BadInput('JAX_PLATFORMS', f'is not available ({first_line(error)})', value=platforms) from None


def _others() -> dict[str, Any]:
    """Returns the settings with wrong values, by name. Settings that this version of JAX does not have are ignored."""
    values = {name: getattr(jax.config, name, value) for name, value in REQUIRED.items()}
    values = {name: getattr(value, 'value', value) for name, value in values.items()}  # unwraps enums
    return {name: value for name, value in values.items() if value != REQUIRED[name]}


def is_not_orbax(record: logging.LogRecord) -> bool:
    """Returns whether a record in the absl logger comes from a library other than Orbax."""
    return 'orbax' not in pathlib.Path(record.pathname).parts
