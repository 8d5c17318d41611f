"""The updates of a run: how many there are, where it pauses, and how far it is."""

import dataclasses
import math

from nplm_jax.config import Settings
from nplm_jax.data.corpora import Span
from nplm_jax.utils.errors import require


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where training stands, beside its arrays; saved as JSON with every checkpoint.

    Attributes:
        step: Updates made.
        best_step: The update whose parameters did best on validation.
        best_valid_nll: Their mean NLL, nats a word.
        valid_nll: The mean NLL of the last validation, nats a word.
        evaluations_since_best: Validations since the best one.
        seconds: Wall time over all starts of the run, without what a kill lost.
        train_seconds: The part of it inside updates, compilation included.
        finished: Whether training is over.
    """

    step: int = 0
    best_step: int = 0
    best_valid_nll: float = math.inf
    valid_nll: float = math.inf
    evaluations_since_best: int = 0
    seconds: float = 0.0
    train_seconds: float = 0.0
    finished: bool = False


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The updates of a run and where it pauses; a pure function of the settings and the training span."""

    steps_per_epoch: int
    total_steps: int
    evaluate_every: int
    checkpoint_every: int
    log_every: int
    steps_per_execution: int

    def next_boundary(self, step: int) -> int:
        """Returns the update at which the execution after `step` ends, however often the run was stopped before."""
        epoch_start = step - step % self.steps_per_epoch
        size = self.steps_per_execution
        return min(epoch_start + self.steps_per_epoch, epoch_start + ((step - epoch_start) // size + 1) * size)

    def is_due(self, every: int, before: int, now: int) -> bool:
        """Returns whether what is done every so many updates, and at the end, is due after updates before+1 to now."""
        return now // every > before // every or now == self.total_steps


def make_schedule(settings: Settings, train: Span) -> Schedule:
    """Returns the schedule. Raises: BadInput for a batch, a warm-up or a number of epochs that is too large."""
    batch_size = settings.train.batch_size
    allowed = f'must be {len(train):,} or less, the training words (corpus.train below 1 is a fraction, else words)'
    require(batch_size <= len(train), 'train.batch_size', batch_size, allowed)
    per_epoch = len(train) // batch_size
    total, warmup = per_epoch * settings.train.epochs, settings.optimizer.warmup
    require(total < 2**31, 'train.epochs', settings.train.epochs, f'must make fewer than 2**31 updates, not {total:,}')
    require(warmup < total, 'optimizer.warmup', warmup, f'must be below {total:,}, all updates of the run')
    return Schedule(
        steps_per_epoch=per_epoch,
        total_steps=total,
        evaluate_every=settings.train.evaluate_every or per_epoch,
        checkpoint_every=settings.train.checkpoint_every,
        log_every=settings.train.log_every,
        steps_per_execution=settings.train.steps_per_execution,
    )
