"""Defines the progress of a run, and the schedule of updates at which the run logs, validates and saves."""

import dataclasses
import math
from typing import NamedTuple


@dataclasses.dataclass(frozen=True)
class Progress:
    """The progress of a run, excluding arrays. It is saved as JSON with every checkpoint.

    Attributes:
        step: The number of completed updates.
        best_step: The number of the update after which the validation NLL was lowest.
        best_valid_nll: The best validation NLL, nats per word.
        valid_nll: The NLL of the last validation, nats per word.
        evaluations_since_best: The number of validations since the best validation.
        seconds: The wall time of the run in seconds. If the run was interrupted, the time after the last checkpoint is
            not included.
        train_seconds: The part of `seconds` that was spent on updates, including their compilation.
        finished: Whether training has ended.
        postprocessed_nll: The validation NLL after calibration, nats per word. Infinite without calibration.
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
    """The actions that are due after a chunk: writing a line of metrics, validating, and saving a checkpoint."""

    log: bool
    evaluate: bool
    save: bool


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Divides the updates of a run into chunks, and determines after which updates periodic actions are due.

    The schedule depends only on the settings and on the number of training words.

    Attributes:
        steps_per_epoch: The number of updates per epoch.
        total_steps: The number of updates of the run.
        evaluate_every: The number of updates between validations.
        checkpoint_every: The number of updates between checkpoints.
        log_every: The number of updates between lines of metrics.
        steps_per_execution: The maximum number of updates per chunk.
        average_start: The number of updates before parameter averaging starts.
    """

    steps_per_epoch: int
    total_steps: int
    evaluate_every: int
    checkpoint_every: int
    log_every: int
    steps_per_execution: int
    average_start: int = 0

    def next_boundary(self, step: int) -> int:
        """Returns the number of the last update in the chunk that starts after update `step`.

        A chunk ends after every `steps_per_execution` updates of an epoch, at the end of an epoch or of the run, and at
        `average_start`. These boundaries do not depend on where the run was resumed.
        """
        epoch_start = step - step % self.steps_per_epoch
        size = self.steps_per_execution
        stop = epoch_start + min(self.steps_per_epoch, ((step - epoch_start) // size + 1) * size)
        stop = min(stop, self.total_steps)
        return self.average_start if step < self.average_start < stop else stop

    def due(self, before: int, now: int) -> Due:
        """Returns the actions that are due after the updates `before` + 1, ..., `now`."""
        every = self.log_every, self.evaluate_every, self.checkpoint_every
        return Due(*(self.is_due(number, before, now) for number in every))

    def is_due(self, every: int, before: int, now: int) -> bool:
        """Returns whether an action is due after the updates `before` + 1, ..., `now`.

        An action is due every `every` updates, and after the last update of the run.
        """
        return now // every > before // every or now == self.total_steps
