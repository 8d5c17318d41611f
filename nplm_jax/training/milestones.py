"""The updates at which a run logs, validates and saves, and its progress; `rate_schedules` has the learning rate."""

import dataclasses
import math
from typing import NamedTuple


@dataclasses.dataclass(frozen=True)
class Progress:
    """The progress of a run, without its arrays; saved as JSON with every checkpoint.

    Attributes:
        step: Number of updates made.
        best_step: The update whose parameters have the best validation NLL.
        best_valid_nll: Their mean NLL, nats per word.
        valid_nll: The mean NLL of the last validation, nats per word.
        evaluations_since_best: Number of validations since the best one.
        seconds: Wall time of all starts of the run up to their last checkpoint.
        train_seconds: The part of it spent in updates, compilation included.
        finished: Whether training is over.
        postprocessed_nll: The mean NLL of the words of the best validation after smoothing and calibration; infinite
            before these, and in a run without them.
    """

    step: int = 0
    best_step: int = 0
    best_valid_nll: float = math.inf
    valid_nll: float = math.inf
    evaluations_since_best: int = 0
    seconds: float = 0.0
    train_seconds: float = 0.0
    finished: bool = False
    postprocessed_nll: float = math.inf


class Due(NamedTuple):
    """What a run does after a chunk: whether it writes a line of metrics, validates, and saves."""

    log: bool
    evaluate: bool
    save: bool


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The chunks of a run, and when it acts; a pure function of the settings and the training span.

    Attributes:
        steps_per_epoch: Updates of an epoch.
        total_steps: Updates of the run.
        evaluate_every: Updates between validations.
        checkpoint_every: Updates between checkpoints.
        log_every: Updates between lines of metrics.
        steps_per_execution: The most updates of a chunk.
        average_start: Updates before the average of the parameters begins.
    """

    steps_per_epoch: int
    total_steps: int
    evaluate_every: int
    checkpoint_every: int
    log_every: int
    steps_per_execution: int
    average_start: int = 0

    def next_boundary(self, step: int) -> int:
        """Returns the last update of the chunk that starts after `step`.

        A chunk ends after `steps_per_execution` updates counted from the start of the epoch, at the end of the epoch
        and of the run, and at `average_start`, wherever the run was resumed.
        """
        epoch_start = step - step % self.steps_per_epoch
        size = self.steps_per_execution
        stop = epoch_start + min(self.steps_per_epoch, ((step - epoch_start) // size + 1) * size)
        stop = min(stop, self.total_steps)
        return self.average_start if step < self.average_start < stop else stop

    def due(self, before: int, now: int) -> Due:
        """Returns what is due after the updates before+1 ... now."""
        every = self.log_every, self.evaluate_every, self.checkpoint_every
        return Due(*(self.is_due(number, before, now) for number in every))

    def is_due(self, every: int, before: int, now: int) -> bool:
        """Returns whether an action after every `every` updates, and after the last one, is due in before+1 ... now."""
        return now // every > before // every or now == self.total_steps
