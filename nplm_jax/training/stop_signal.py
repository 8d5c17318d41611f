"""The signal that asks a training to stop, in all of its processes before the same chunk."""

import time
from collections.abc import Callable

import numpy as np

from nplm_jax.distributed import multihost

_SECONDS = 1.0  # between two exchanges of signals, about


class StopSignal:
    """Exchanges the signals of the processes, for which each waits for the others, about once a second.

    At each exchange the processes agree on the number of chunks until the next one. A process without others looks
    before every chunk.
    """

    def __init__(self, interrupted: Callable[[], int]) -> None:
        """Takes a function that returns the number of this process's signal, 0 for none."""
        self._interrupted = interrupted
        self._chunks_left, self._interval, self._exchanged = 0, 1, time.perf_counter()

    def number(self, at_once: bool) -> int:
        """Returns the signal's number in every process, 0 for none. Every process calls this before each chunk.

        Args:
            at_once: Whether to exchange signals now; the same in every process.
        """
        if multihost.is_alone():
            return self._interrupted()
        if self._chunks_left and not at_once:
            self._chunks_left -= 1
            return 0
        passed = max(time.perf_counter() - self._exchanged, 1e-3)
        fitting = int(np.clip(self._interval * _SECONDS / passed, 1, 2 * self._interval))
        number, longest = np.max(multihost.allgather(np.array([self._interrupted(), -fitting], np.int32)), axis=0)
        self._interval, self._exchanged = -int(longest), time.perf_counter()
        self._chunks_left = self._interval - 1
        return int(number)
