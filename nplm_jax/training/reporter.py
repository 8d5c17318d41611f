"""What training tells of itself, and to whom."""

from typing import Protocol

import numpy as np

from nplm_jax.training.schedule import Progress, Schedule


class Reporter(Protocol):
    """Is told what happens in training. `runs.reporting` has one that writes files and moves a progress bar."""

    def start(self, progress: Progress, schedule: Schedule, batch_size: int) -> None:
        """Called once, before the first chunk."""

    def trained(self, progress: Progress, nll_S: np.ndarray) -> None:
        """Called after each chunk with the mean NLL of each of its batches."""

    def validated(self, progress: Progress) -> None:
        """Called after each validation."""

    def close(self) -> None:
        """Called at last."""


class NullReporter:
    """The reporter of processes that write nothing."""

    def start(self, progress: Progress, schedule: Schedule, batch_size: int) -> None:
        """Does nothing."""

    def trained(self, progress: Progress, nll_S: np.ndarray) -> None:
        """Does nothing."""

    def validated(self, progress: Progress) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""
