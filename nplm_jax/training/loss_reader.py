"""Defers the reading of losses: those of a chunk stay on the device until the next chunk has been dispatched.

Dims: S updates per chunk.
"""

import dataclasses
import time

import jax
import numpy as np

from nplm_jax.training import finite
from nplm_jax.training.milestones import Progress
from nplm_jax.training.reporter import Reporter


class LossReader:
    """Transfers the losses of chunks from the device, reports them, and measures the durations of the chunks."""

    def __init__(self, reporter: Reporter, started: float) -> None:
        """Creates a reader.

        Args:
            reporter: The reporter that receives the losses.
            started: The value of `time.perf_counter()` at the start of the run.
        """
        self._reporter, self._started = reporter, started
        self._unread: list[tuple[int, jax.Array | np.ndarray]] = []  # (last update before the chunk, losses)
        self._last_read = time.perf_counter()

    def start_chunk(self) -> None:
        """Starts timing the next chunk, unless the device is still computing the previous one."""
        if not self._unread:
            self._last_read = time.perf_counter()

    def add(
        self, progress: Progress, nll_S: jax.Array | np.ndarray, seconds: float | None = None, wait: bool = False
    ) -> Progress:
        """Adds the losses of a chunk, and reads the losses of the previous chunk.

        Args:
            progress: The progress before the chunk.
            nll_S: The mean NLL of each batch, nats per word.
            seconds: The duration of the chunk in seconds. If None, it is measured as the time until the losses of the
                chunk are read.
            wait: Whether to read the losses of this chunk immediately, which waits for its updates.

        Returns:
            The progress after the chunk.

        Raises:
            NonFiniteError: A loss is not finite.
        """
        self._unread.append((progress.step, nll_S))
        progress = dataclasses.replace(progress, step=progress.step + len(nll_S))
        return self.read(progress, 0 if wait or seconds is not None else 1, seconds)

    def read(self, progress: Progress, keep: int = 0, seconds: float | None = None) -> Progress:
        """Reads and reports the losses of all unread chunks except the last `keep`.

        Returns the progress with updated durations.
        """
        while len(self._unread) > keep:
            before, losses = self._unread.pop(0)
            nll_S = jax.device_get(losses)
            finite.require_finite_losses(nll_S, before)
            now = time.perf_counter()
            train_seconds = progress.train_seconds + (now - self._last_read if seconds is None else seconds)
            self._last_read = now
            progress = dataclasses.replace(progress, seconds=now - self._started, train_seconds=train_seconds)
            self._reporter.trained(dataclasses.replace(progress, step=before + len(nll_S)), nll_S)
        return progress
