"""What a process does before JAX starts, and how it hears of signals."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

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


@contextlib.contextmanager
def interruptible() -> Iterator[Callable[[], int]]:
    """Turns the first SIGINT or SIGTERM into a request to stop; a second one acts as it always does.

    Yields:
        A function that returns the signal's number, 0 while there was none.
    """
    requests: list[int] = []
    former: dict[int, Any] = {}

    def request(number: int, _frame: Any) -> None:
        requests.append(number)
        signal.signal(number, former[number])
        print('\nstopping after the updates under way ...', file=sys.stderr)

    if threading.current_thread() is threading.main_thread():  # no other may handle signals
        former |= {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        for number in former:
            signal.signal(number, request)
    try:
        yield lambda: requests[0] if requests else 0
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
