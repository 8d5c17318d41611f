"""One update of a run made again, to see where its numbers stop being finite.

What an update is depends on the settings, the text and the checkpoint before it alone. So a run looks at its state now
and then only, and which update went wrong is found out here, from the newest checkpoint on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.config import Settings
from nplm_jax.data import dataset
from nplm_jax.distributed import sharding
from nplm_jax.outputs import sampled
from nplm_jax.training import loop, sparse_rows
from nplm_jax.training.schedule import Schedule, make_schedule, order
from nplm_jax.utils import finite
from nplm_jax.utils.io import write_atomically
from nplm_jax.utils.text import to_json

if TYPE_CHECKING:
    from nplm_jax.training.checkpoints import CheckpointStore

FILE = 'not_finite.json'
REMEDY = 'try another --workdir with a lower optimizer.learning_rate, or optimizer.clip_norm'


@dataclasses.dataclass(frozen=True)
class Update:
    """What is known of one update. Norms are Euclidean, of each parameter.

    number: counted from 1. epoch: counted from 0. first: the place of its first word in the order of the epoch, of
    which it takes the next B. positions: of these words in the stream. loss: nats a word, before the update.
    """

    number: int
    epoch: int
    first: int
    positions: tuple[int, ...]
    loss: float
    norms: dict[str, float]  # before the update
    gradient_norms: dict[str, float]
    not_finite: str | None  # the first that is not: a parameter before it, the loss, a gradient, the state after it


def find(settings: Settings, data: dataset.Dataset, store: CheckpointStore, until: int) -> Update | None:
    """The first update whose numbers are not all finite: those from the newest checkpoint on are made again.

    until: the last one that is made. Returns: None when all are finite, as may be where sums are not always added in
    the same order.
    """
    run, state, step = _begin(settings, data, store, until)
    while step < until:
        after, end, sound = run.dispatch(jax.tree.map(jnp.copy, state), step)
        if not sound:
            return run.one_by_one(state, step)
        state, step = after, end
    return None


def look(settings: Settings, data: dataset.Dataset, store: CheckpointStore, number: int) -> Update:
    """That update, whatever its numbers are; or the first one before it, in the same dispatch, that is not finite."""
    run, state, step = _begin(settings, data, store, number)
    while run.schedule.next_boundary(step) < number:
        state, step, _ = run.dispatch(state, step)
    return run.one_by_one(state, step, number)


def explain(
    error: finite.NonFiniteError,
    settings: Settings,
    data: dataset.Dataset,
    store: CheckpointStore,
    folder: pathlib.Path | None = None,
) -> finite.NonFiniteError:
    """The error with the update that caused it, its batch and norms, which are written to the run's folder as well.

    With several processes each calls this; the first one has a folder, and says what was found.
    """
    if folder is None:
        if error.seen_at is not None:
            find(settings, data, store, error.seen_at)
        return error
    saved = store.latest_step()
    kept = f'the checkpoint of update {saved:,} is kept' if saved is not None else 'no checkpoint was saved yet'
    if error.seen_at is None:
        return finite.NonFiniteError(f'{error}; {kept}; {REMEDY}')
    print(f'{error}; making the updates from {saved or 0:,} on again, to find which it was ...', file=sys.stderr)
    if (found := find(settings, data, store, error.seen_at)) is None:
        again = 'not again when these updates were made a second time'
        return finite.NonFiniteError(f'{error} ({again}); {kept}; {REMEDY}', error.seen_at)
    norms = (f'{name} {norm:.6g} ({found.gradient_norms[name]:.6g})' for name, norm in found.norms.items())
    lines = [
        f'update {found.number:,}: {found.not_finite} is not finite; {kept}; {REMEDY}',
        *describe(found),
        f'norms before it (and of gradients): {", ".join(norms)}',
    ]
    with contextlib.suppress(OSError):  # a full disk must not hide all this
        text = to_json(dataclasses.asdict(found), convert_nonfinite=str, indent=2)  # `inf` tells more than null
        write_atomically(folder / FILE, text + '\n')
        lines.append(f'all positions and norms: {folder / FILE}')
    replay = ['python', '-m', 'nplm_jax.cli', 'replay', f'--workdir={folder}', f'--step={found.number}']
    lines.append(f'the same update again: {shlex.join(replay)}')
    return finite.NonFiniteError('\n'.join(lines), error.seen_at)


def describe(update: Update) -> list[str]:
    """Two lines of text: the batch, the loss."""
    last = update.first + len(update.positions) - 1
    positions = f'positions {min(update.positions):,} to {max(update.positions):,} of the text'
    return [
        f'its batch: words {update.first:,} to {last:,} of the order of epoch {update.epoch}, {positions}',
        f'its loss: {update.loss:.6g} nats a word',
    ]


@dataclasses.dataclass(frozen=True)
class _Run:
    """What is the same for all updates of a run."""

    settings: Settings
    data: dataset.Dataset
    schedule: Schedule
    layout: sharding.Layout
    noise: sampled.Noise | None
    tokens_T: jax.Array
    order: Callable[[int], jax.Array]  # of an epoch

    def dispatch(self, state: loop.TrainState, step: int) -> tuple[loop.TrainState, int, bool]:
        """Makes that after the update `step`, as the run did. Returns: its end, and whether all is finite there."""
        order_T, end = self.order(step // self.schedule.steps_per_epoch), self.schedule.next_boundary(step)
        place, total = step % self.schedule.steps_per_epoch, self.schedule.total_steps
        after, nll_S = loop.train_steps(
            state, self.tokens_T, order_T, place, self.settings, total, end - step, self.noise, self.layout
        )
        return after, end, np.isfinite(np.asarray(nll_S)).all() and finite.first_not_finite(after) is None

    def one_by_one(self, state: loop.TrainState, step: int, wanted: int | None = None) -> Update | None:
        """The updates of that dispatch up to the one that is wanted, or the first that is not finite."""
        epoch = step // self.schedule.steps_per_epoch
        order_T, end, B = self.order(epoch), self.schedule.next_boundary(step), self.settings.train.batch_size
        for number in range(step + 1, end + 1):
            first = (number - 1) % self.schedule.steps_per_epoch * B
            positions_B = order_T[first : first + B]
            decayed = end - step if number == end else 0
            after, nll, gradients = _update(
                state,
                self.tokens_T,
                positions_B,
                self.settings,
                self.schedule.total_steps,
                decayed,
                self.noise,
                self.layout,
            )
            bad = _first_not_finite(state, nll, gradients, after)
            if number == wanted or bad is not None:
                before = finite.norms(self.layout.get(state.params, len(self.data.vocabulary)))
                positions = tuple(np.asarray(positions_B).tolist())
                of_gradients = finite.norms(self.layout.get(gradients, len(self.data.vocabulary)))
                return Update(number, epoch, first, positions, float(np.asarray(nll)), before, of_gradients, bad)
            state = after
        return None


def _begin(settings, data, store, before) -> tuple[_Run, loop.TrainState, int]:
    layout, schedule = sharding.build(settings), make_schedule(settings, data.train)
    state, _, progress = loop.begin(settings, schedule, data, store, before)
    noise = layout.everywhere(sampled.for_data(data, settings.output))
    # One epoch's is kept, for to make it takes longer than a dispatch.
    of_epoch = functools.lru_cache(1)(lambda epoch: layout.everywhere(order(settings, epoch, data.train)))
    run = _Run(settings, data, schedule, layout, noise, layout.everywhere(data.tokens_T), of_epoch)
    return run, layout.put(state), progress.step


@functools.partial(jax.jit, static_argnames=('settings', 'total_steps', 'decayed', 'layout'))
def _update(state, tokens_T, positions_B, settings, total_steps, decayed, noise, layout):
    """One update, and what it is made of. decayed: as many updates' decay comes after it."""
    batch = loop.batch(settings, tokens_T, positions_B)
    found = loop.gradients(state, *batch, settings, total_steps, noise, layout)
    after = loop.update(state, found, settings, total_steps, layout)
    if decayed:
        first = after.step - decayed
        after = after.replace(params=loop.decay(after.params, first, settings, total_steps, decayed))
    gradients = found.trees[0]
    if found.rows is not None:
        gradients = sparse_rows.add(jax.tree.map(jnp.zeros_like, state.params), *found.trees, *found.rows)
    return after, found.nll, layout.replicate(gradients)


def _first_not_finite(before, nll, gradients, after) -> str | None:
    if (name := finite.first_not_finite(before)) is not None:
        return f'{name.removeprefix("params.")} before it'
    if not np.isfinite(np.asarray(nll)):
        return 'its loss'
    if (name := finite.first_not_finite(gradients)) is not None:
        return f'its gradient of {name}'
    name = finite.first_not_finite(after)
    return None if name is None else f'{name.removeprefix("params.")} after it'
