"""What a process does before JAX starts."""

import os

import jax
from absl import logging

from nplm_jax.data import download


def set_up_process(all_cores: bool = False) -> None:
    """Does what every command does before JAX starts: quiets Orbax, and keeps compiled programs between starts.

    Args:
        all_cores: Whether each core of the CPU becomes a device, unless JAX_NUM_CPU_DEVICES says how many there are.
    """
    if all_cores and 'JAX_NUM_CPU_DEVICES' not in os.environ:
        # macOS has no sched_getaffinity.
        num_cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
        jax.config.update('jax_num_cpu_devices', num_cores)
    logging.set_verbosity(logging.WARNING)  # Orbax tells much at the level below
    if not jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]  # JAX_COMPILATION_CACHE_DIR sets another
        jax.config.update('jax_compilation_cache_dir', str(download.cache_folder() / 'compiled'))
