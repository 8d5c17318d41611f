"""Coordinates stop signals between processes, so that all processes of a run stop before the same chunk."""

import time
from collections.abc import Callable

import numpy as np

from nplm_jax.distributed import multihost

_SECONDS = 1.0  # approximate time between exchanges of signals


class StopSignal:
    """A stop signal that all processes of a run share.

    About once a second, the processes exchange the signals that they have received. In each exchange, every process
    waits for all others, and they agree on the number of chunks until the next exchange. A run with a single process
    checks for signals before every chunk.
    """

    def __init__(self, interrupted: Callable[[], int]) -> None:
        """Creates the signal from a function that returns the number of the signal that this process received, or 0."""
        self._interrupted = interrupted
        self._chunks_left, self._interval, self._exchanged = 0, 1, time.perf_counter()

    def number(self, at_once: bool) -> int:
        """Returns the number of a signal that any process received, or 0 if there is none.

        The result is the same in every process. Every process must call this method before each chunk.

        Args:
            at_once: Whether to exchange signals in this call. The value must be the same in every process.
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
