"""What a process does before JAX starts."""

import os
import warnings
from typing import Any

import jax
from absl import logging

from nplm_jax.distributed import jax_settings
from nplm_jax.executors.processes import num_processors
from nplm_jax.ngram.kneser_ney import DiscountWarning
from nplm_jax.utils.io import cache_folder

_FORMAT = warnings.formatwarning


def set_up_process(all_cores: bool = False) -> None:
    """Does what every command does before JAX starts.

    Pins JAX's settings that results depend on, quiets Orbax, and keeps compiled programs between starts.

    Args:
        all_cores: Whether each core of the CPU becomes a device, unless JAX_NUM_CPU_DEVICES says how many there are.
    """
    jax_settings.pin()
    if all_cores and 'JAX_NUM_CPU_DEVICES' not in os.environ:
        jax.config.update('jax_num_cpu_devices', num_processors())
    logging.set_verbosity(logging.WARNING)  # Orbax tells much at the level below
    logging.get_absl_logger().addFilter(jax_settings.is_not_orbax)  # CheckpointStore raises what it logs
    if not jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]  # JAX_COMPILATION_CACHE_DIR sets another
        jax.config.update('jax_compilation_cache_dir', str(cache_folder() / 'compiled'))
    warnings.formatwarning = _format_warning


def _format_warning(message: Any, category: Any, *where: Any, **options: Any) -> str:
    """Returns what Python prints of a warning; of too little text one line, without a line of code."""
    return f'{message}\n' if category is DiscountWarning else _FORMAT(message, category, *where, **options)
