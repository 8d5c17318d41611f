"""The version of jaxlib, and the settings of JAX on which types and random numbers depend.

Environment variables and notebooks change the settings.
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
_UNUSABLE = {  # releases of jaxlib
    '0.10.2': 'computes wrong results on CPUs',  # jax #39103
    '0.11.1': 'copies all outputs of a scan at each of its steps',  # jax #40101: 3.6 s instead of 2 ms
}


def require_usable_jaxlib() -> None:
    """Raises BadInput for a release of jaxlib in _UNUSABLE."""
    version = jaxlib.__version__
    others = ','.join(f'!={release}' for release in _UNUSABLE)
    advice = f'{_UNUSABLE.get(version)}; install another version: pip install "jax{others}" "jaxlib{others}"'
    require(version not in _UNUSABLE, 'jaxlib', version, advice)


def pin() -> None:
    """Sets the required settings in this process, and names on stderr those that were set otherwise.

    Raises:
        BadInput: The installed jaxlib cannot be used.
    """
    require_usable_jaxlib()
    for name, value in _others().items():
        print(f'{name.upper()}={value}: ignored; runs use {name}={REQUIRED[name]}', file=sys.stderr)
        jax.config.update(name, REQUIRED[name])


def check() -> None:
    """Starts JAX, and changes no setting.

    Raises:
        BadInput: A setting has another value, the installed jaxlib cannot be used, or JAX_PLATFORMS names a
            platform that JAX cannot use.
    """
    require_usable_jaxlib()
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


def is_not_orbax(record: logging.LogRecord) -> bool:
    """Returns whether a record of absl's logger, which Orbax shares, is not Orbax's."""
    return 'orbax' not in pathlib.Path(record.pathname).parts
