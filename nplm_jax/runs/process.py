"""Sets up a process before JAX starts."""

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
    """Sets up the process of a command before JAX starts.

    Pins the JAX settings that affect results, silences Orbax, and enables the persistent compilation cache.

    Args:
        all_cores: Whether to make each CPU core a JAX device. JAX_NUM_CPU_DEVICES, if set, takes precedence.
    """
    jax_settings.pin()
    if all_cores and 'JAX_NUM_CPU_DEVICES' not in os.environ:
        jax.config.update('jax_num_cpu_devices', num_processors())
    logging.set_verbosity(logging.WARNING)  # Orbax is verbose at the INFO level
    logging.get_absl_logger().addFilter(jax_settings.is_not_orbax)  # CheckpointStore raises the errors that Orbax logs
    if not jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]  # JAX_COMPILATION_CACHE_DIR sets another
        jax.config.update('jax_compilation_cache_dir', str(cache_folder() / 'compiled'))
    warnings.formatwarning = _format_warning


def _format_warning(message: Any, category: Any, *where: Any, **options: Any) -> str:
    """Formats a warning as Python does, but formats a DiscountWarning as one line without source code."""
    return f'{message}\n' if category is DiscountWarning else _FORMAT(message, category, *where, **options)
