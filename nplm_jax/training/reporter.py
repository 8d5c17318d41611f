"""The interface through which training reports its progress."""

import numpy as np

from nplm_jax.training.schedule import Progress, Schedule


class Reporter:
    """Receives training events and ignores them. `runs.reporting.Reporter` writes files and moves a progress bar."""

    def start(self, progress: Progress, schedule: Schedule, batch_size: int) -> None:
        """Called once, before the first chunk."""

    def trained(self, progress: Progress, nll_S: np.ndarray) -> None:
        """Called after each chunk with the mean NLL of each of its batches."""

    def validated(self, progress: Progress) -> None:
        """Called after each validation."""

    def close(self) -> None:
        """Called once after training."""
