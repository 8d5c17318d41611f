"""Defines the interface through which training reports its progress."""

import numpy as np

from nplm_jax.training.flops import Cost
from nplm_jax.training.milestones import Progress, Schedule


class Reporter:
    """The base class of reporters, which ignores all events.

    The commands use `run_reporter.Reporter`, which writes files and shows a progress bar.
    """

    def start(
        self, progress: Progress, schedule: Schedule, batch_size: int, cost: Cost, sampled_words: int = 0
    ) -> None:
        """Called once, before the first chunk.

        Args:
            progress: The progress of the run.
            schedule: The updates at which the run logs, validates and saves.
            batch_size: The number of words per update.
            cost: The cost of training per word.
            sampled_words: The number of words in a validation sample, or 0 if validations use all validation words.
        """

    def trained(self, progress: Progress, nll_S: np.ndarray) -> None:
        """Called after each chunk with the mean NLL of each batch, in nats per word."""

    def validated(self, progress: Progress) -> None:
        """Called after each validation."""

    def sampled(self, text: str) -> None:
        """Called with a sample of generated text after each validation, if `train.sample_words` is set."""

    def postprocessed(self, what: str, before: float, after: float) -> None:
        """Called after the post-processing of the best parameters, such as calibration.

        Args:
            what: The name of the post-processing, a noun phrase such as `calibration`.
            before: The mean NLL of the validation words before it, nats per word.
            after: The mean NLL of the validation words after it, nats per word.
        """

    def close(self) -> None:
        """Called once after training."""
