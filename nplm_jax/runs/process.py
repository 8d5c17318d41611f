"""What a process does before JAX starts."""

import contextlib
import glob
import os
import pathlib
import re
import sys
import warnings
from typing import Any

import jax
from absl import logging

from nplm_jax.data import download
from nplm_jax.models.ngram.kneser_ney import DiscountWarning
from nplm_jax.utils import jax_settings
from nplm_jax.utils.processes import num_processors

_UNREADABLE = re.compile(r"Error reading persistent compilation cache entry for '([\w.<>-]+)'")


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
    if not jax.config.jax_compilation_cache_dir:  # type: ignore[attr-defined]  # JAX_COMPILATION_CACHE_DIR sets another
        jax.config.update('jax_compilation_cache_dir', str(download.cache_folder() / 'compiled'))
    if not isinstance(warnings.showwarning, _ShowWarning):
        warnings.showwarning = _ShowWarning(warnings.showwarning)


def forget_unreadable_program(warning: str) -> None:
    """Deletes the compiled programs of which JAX warns that it cannot read one.

    JAX writes them in place, so that a kill may cut one short, and never over one that is there: without this it would
    compile the program again at every start.

    Args:
        warning: The text of a warning, which names the program's function; programs of that name are deleted.
    """
    folder = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    if folder and (match := _UNREADABLE.match(warning)):
        for path in pathlib.Path(folder).glob(f'{glob.escape(match[1])}-*-cache'):
            with contextlib.suppress(OSError):  # a cache that others own; the program is compiled all the same
                path.unlink()


class _ShowWarning:
    """Takes the place of `warnings.showwarning`. A warning of too little text is one line, without a line of code."""

    def __init__(self, show: Any) -> None:
        self._show = show

    def __call__(self, message: Any, *arguments: Any, **options: Any) -> None:
        forget_unreadable_program(str(message))
        if isinstance(message, DiscountWarning):
            print(message, file=sys.stderr, flush=True)
        else:
            self._show(message, *arguments, **options)
