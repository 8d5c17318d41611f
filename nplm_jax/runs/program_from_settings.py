"""Builds the program and the schedule of a run from its settings."""

import dataclasses
import math

from nplm_jax.config.settings import Settings
from nplm_jax.data.stream import Span
from nplm_jax.distributed.sharding import ONE_DEVICE, PADDING_BIAS, MeshSharding
from nplm_jax.models.network import Network
from nplm_jax.outputs.output_layer import BIAS, EMBEDDING, SparseOutputLayer
from nplm_jax.training import affixes
from nplm_jax.training.milestones import Schedule
from nplm_jax.training.optimizers import make_optimizer
from nplm_jax.training.step import Program
from nplm_jax.utils.errors import require

# Beyond this number of updates, rounding changes an update's weight in the average by more than 1%.
_MAX_AVERAGED = 2**20


def make_program(
    settings: Settings,
    network: Network,
    steps_per_epoch: int,
    sharding: MeshSharding = ONE_DEVICE,
    num_affixes: int = 0,
) -> Program:
    """Returns the program of a run. Runs that differ only in the seed and in `Rule.traced` have the same program."""
    total, batch_size = total_steps(settings, steps_per_epoch), settings.train.batch_size
    tables = *network.tables.all, *map(affixes.name_of, network.tables.of_words)
    return Program(
        network=network,
        optimizer=make_optimizer(settings.optimizer, total, batch_size, tables, network.tables.units),
        batch_size=batch_size,
        steps_per_epoch=steps_per_epoch,
        scatters_updates=isinstance(network.output, SparseOutputLayer) and updates_rows(settings),
        num_microbatches=settings.train.accumulate,
        average_decay=settings.train.average,
        average_start=average_start(settings, total),
        num_affixes=num_affixes,
        sharding=dataclasses.replace(sharding, paddings=paddings_of(network)),
    )


def paddings_of(network: Network) -> tuple[tuple[str, float], ...]:
    """Returns the names and padding values of the parameters whose rows are divided across devices.

    See `MeshSharding`.

    C is excluded, even with weight tying, because every device reads arbitrary rows of C.
    """
    names = (name for name in network.tables.words if name != EMBEDDING)
    return tuple((name, PADDING_BIAS if name == BIAS else 0.0) for name in names)


def updates_rows(settings: Settings) -> bool:
    """Returns whether an update with a sparse loss changes only the rows of the tables that the loss reads.

    This requires an optimizer with `Rule.updates_rows`. Weight decay and the running average are then applied through
    the factors of `DeferredScaling`, which shrink with each update of a chunk. If the factors might underflow, every
    update changes all rows.
    """
    rule, train = settings.optimizer, settings.train
    smallest = min(1 - rule.peak_table_rate(train.batch_size) * rule.decay, train.average or 1.0)
    underflows = smallest <= 0 or train.steps_per_execution * math.log(smallest) < -10
    return rule.updates_rows and not underflows


def make_schedule(settings: Settings, train: Span) -> Schedule:
    """Returns the schedule of a run. Raises BadInput if the batch, the warm-up or the number of epochs is too large."""
    batch_size = settings.train.batch_size
    allowed = f'must not exceed {len(train):,}, the number of training words (corpus.train below 1 is a fraction)'
    require(batch_size <= len(train), 'train.batch_size', batch_size, allowed)
    per_epoch = len(train) // batch_size
    total, warmup = total_steps(settings, per_epoch), settings.optimizer.warmup
    require(
        total < 2**31, 'train.epochs', settings.train.epochs, f'must result in fewer than 2**31 updates, not {total:,}'
    )
    require(warmup < total, 'optimizer.warmup', warmup, f'must be less than {total:,}, the number of updates')
    share, allowed = settings.train.average_start, 'must be 0 if train.average=0'
    require(settings.train.average > 0 or not share, 'train.average_start', share, allowed)
    average = settings.train.average
    num_averaged = min(total - average_start(settings, total), 1 / max(1 - average, 1e-9))  # at most 1 without averages
    allowed = (
        f'must be 0, because an average of {num_averaged:,.0f} updates is inexact in float32 (limit: {_MAX_AVERAGED:,})'
    )
    require(num_averaged <= _MAX_AVERAGED, 'train.average', average, allowed)
    return Schedule(
        steps_per_epoch=per_epoch,
        total_steps=total,
        evaluate_every=settings.train.evaluate_every or per_epoch,
        checkpoint_every=settings.train.checkpoint_every,
        log_every=settings.train.log_every,
        steps_per_execution=settings.train.steps_per_execution,
        average_start=average_start(settings, total),
    )


def total_steps(settings: Settings, steps_per_epoch: int) -> int:
    """Returns the number of updates in a run that is not stopped early."""
    total = steps_per_epoch * settings.train.epochs
    return min(settings.train.max_steps or total, total)


def average_start(settings: Settings, total_steps: int) -> int:
    """Returns the number of updates before parameter averaging starts."""
    return int(settings.train.average_start * total_steps)
