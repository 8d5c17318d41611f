"""The interface through which training reports its progress."""

import numpy as np

from nplm_jax.training.flops import Cost
from nplm_jax.training.milestones import Progress, Schedule


class Reporter:
    """Receives training events and ignores them. `run_reporter.Reporter` writes files and moves a progress bar."""

    def start(
        self, progress: Progress, schedule: Schedule, batch_size: int, cost: Cost, sampled_words: int = 0
    ) -> None:
        """Called once, before the first chunk.

        Args:
            progress: How far the run is.
            schedule: When the run reports.
            batch_size: Words an update.
            cost: What a word costs.
            sampled_words: The words of a validation if it predicts a sample of the validation words; 0 for all words.
        """

    def trained(self, progress: Progress, nll_S: np.ndarray) -> None:
        """Called after each chunk with the mean NLL of each of its batches."""

    def validated(self, progress: Progress) -> None:
        """Called after each validation."""

    def sampled(self, text: str) -> None:
        """Called after each validation with a sample of text, if the settings ask for any."""

    def postprocessed(self, what: str, before: float, after: float) -> None:
        """Called once after the changes that are made to the best parameters when training is over, if there are any.

        Args:
            what: The changes, the subject of a sentence.
            before: The mean NLL of the validation words before them, nats per word.
            after: The same after them.
        """

    def close(self) -> None:
        """Called once after training."""
