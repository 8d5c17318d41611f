"""The updates of a run: how many, where it pauses, in which order they visit the words, and how far it is."""

from __future__ import annotations

import dataclasses
import math

import jax

from nplm_jax.config import Settings
from nplm_jax.data import dataset
from nplm_jax.data.corpora import Span
from nplm_jax.utils.errors import require


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where training stands, beside its arrays; saved as JSON with every checkpoint."""

    step: int = 0
    best_step: int = 0
    best_valid_nll: float = math.inf  # nats a word
    valid_nll: float = math.inf  # of the last evaluation
    evaluations_since_best: int = 0
    seconds: float = 0.0  # wall time so far, over all starts of the run, less what a kill lost
    train_seconds: float = 0.0  # of which inside updates, compilation included
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
        """The update at which the dispatch after `step` ends: the same however often a run was stopped."""
        start = step - step % self.steps_per_epoch
        dispatch = self.steps_per_execution
        return min(start + self.steps_per_epoch, start + ((step - start) // dispatch + 1) * dispatch)

    def is_due(self, every: int, before: int, now: int) -> bool:
        """Whether something done every so many updates, and at the end, became due with the last dispatch."""
        return now // every > before // every or now == self.total_steps


def make_schedule(settings: Settings, train: Span) -> Schedule:
    """Raises: BadInput when the batch is larger than the corpus, the warm-up longer than the run, or that too long."""
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


def order(settings: Settings, epoch: int, train: Span) -> jax.Array:
    """The positions in the order in which an epoch visits them, the first being 0. int32; update s of it takes B."""
    if settings.model.is_recurrent:
        return dataset.stream_order(settings.seed, epoch, train, settings.streams, settings.train.bptt_length)
    return dataset.epoch_order(settings.seed, epoch, train)
