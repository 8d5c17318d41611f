"""One update of a run made again, to see where its numbers stop being finite.

An update depends on the settings, the text and the checkpoint before it alone. So a run checks its state only now and
then, and this module finds the update that went wrong, from the newest checkpoint on. Dims: B batch.
"""

import contextlib
import dataclasses
import functools
import pathlib
import shlex
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.config import Settings
from nplm_jax.data import dataset
from nplm_jax.distributed import multihost
from nplm_jax.training import step as step_lib
from nplm_jax.training.checkpoints import Store
from nplm_jax.training.loop import TrainingRun, prepare_run, restore_or_init, run_chunk
from nplm_jax.training.optimizers import Hyperparameters
from nplm_jax.training.step import Program, TrainState
from nplm_jax.utils import finite
from nplm_jax.utils.errors import NonFiniteError
from nplm_jax.utils.io import write_atomically
from nplm_jax.utils.text import to_json

FILE = 'not_finite.json'
REMEDY = 'try another --workdir with a lower optimizer.learning_rate, or optimizer.clip_norm'


@dataclasses.dataclass(frozen=True)
class Update:
    """What is known of one update. Norms are Euclidean, of each parameter.

    Attributes:
        number: Counted from 1.
        epoch: Counted from 0.
        first: The place of its first word in the order of the epoch, of which it takes the next B.
        positions: The positions of these words in the text.
        loss: The mean NLL before the update, nats a word.
        norms: Of the parameters before the update.
        gradient_norms: Of the gradients.
        not_finite: What is not finite first: a parameter before it, the loss, a gradient, the state after it.
    """

    number: int
    epoch: int
    first: int
    positions: tuple[int, ...]
    loss: float
    norms: dict[str, float]
    gradient_norms: dict[str, float]
    not_finite: str | None


def find_non_finite(settings: Settings, data: dataset.Dataset, store: Store, last: int) -> Update | None:
    """Makes the updates from the newest checkpoint to `last` again, until one has a number that is not finite.

    Returns:
        That update. None when all are finite, as may be where sums are not always added in the same order.
    """
    run, state, step = _restore(settings, data, store, last)
    while step < last:
        after, end, sound = _run_execution(run, jax.tree.map(jnp.copy, state), step)
        if not sound:
            return _run_one_by_one(run, state, step)
        state, step = after, end
    return None


def replay_update(settings: Settings, data: dataset.Dataset, store: Store, number: int) -> Update:
    """Makes that update again, or the first one before it in the same execution that is not finite."""
    run, state, step = _restore(settings, data, store, number)
    while run.schedule.next_boundary(step) < number:
        state, step, _ = _run_execution(run, state, step)
    update = _run_one_by_one(run, state, step, number)
    assert update is not None  # the last one made has that number
    return update


def explain(
    error: NonFiniteError,
    settings: Settings,
    data: dataset.Dataset,
    store: Store,
    folder: pathlib.Path,
) -> NonFiniteError:
    """Finds the update that caused an error. Every process of a run calls this, and the first one writes.

    Args:
        error: What ended the run.
        settings: The run's settings.
        data: Its corpus.
        store: Its checkpoints.
        folder: Its folder, to which all that is known of the update is written.

    Returns:
        An error with the update, its batch and its norms in the message.
    """
    saved = store.latest_step()
    kept = f'the checkpoint of update {saved:,} is kept' if saved is not None else 'no checkpoint was saved yet'
    if error.seen_at is None:
        return NonFiniteError(f'{error}; {kept}; {REMEDY}')
    if multihost.is_primary():
        text = f'{error}; making the updates from {saved or 0:,} on again, to find which it was ...'
        print(text, file=sys.stderr)
    update = find_non_finite(settings, data, store, error.seen_at)
    if update is None:
        again = 'not again when these updates were made a second time'
        return NonFiniteError(f'{error} ({again}); {kept}; {REMEDY}', error.seen_at)
    norms = (f'{name} {norm:.6g} ({update.gradient_norms[name]:.6g})' for name, norm in update.norms.items())
    lines = [
        f'update {update.number:,}: {update.not_finite} is not finite; {kept}; {REMEDY}',
        *describe(update),
        f'norms before it (and of gradients): {", ".join(norms)}',
    ]
    if multihost.is_primary():
        with contextlib.suppress(OSError):  # a full disk must not hide all this
            text = to_json(dataclasses.asdict(update), convert_nonfinite=str, indent=2)  # `inf` tells more than null
            write_atomically(folder / FILE, text + '\n')
            lines.append(f'all positions and norms: {folder / FILE}')
    command = ['python', '-m', 'nplm_jax.cli', 'replay', f'--workdir={folder}', f'--step={update.number}']
    lines.append(f'the same update again: {shlex.join(command)}')
    return NonFiniteError('\n'.join(lines), error.seen_at)


def describe(update: Update) -> list[str]:
    """Returns two lines of text: the batch and the loss."""
    last = update.first + len(update.positions) - 1
    positions = f'positions {min(update.positions):,} to {max(update.positions):,} of the text'
    return [
        f'its batch: words {update.first:,} to {last:,} of the order of epoch {update.epoch}, {positions}',
        f'its loss: {update.loss:.6g} nats a word',
    ]


def _restore(
    settings: Settings, data: dataset.Dataset, store: Store, before: int
) -> tuple[TrainingRun, TrainState, int]:
    """Returns the run, and the state and the step of its newest checkpoint before an update."""
    run = prepare_run(settings, data)
    state, _, progress = restore_or_init(run, store, before)
    return run, run.program.sharding.shard(state), progress.step


def _run_execution(run: TrainingRun, state: TrainState, step: int) -> tuple[TrainState, int, bool]:
    """Makes the updates of one execution as the run did. Returns: the state, its step, whether all is finite."""
    after, nll_S, _ = run_chunk(run.chunk(state, step))
    sound = bool(np.isfinite(nll_S).all()) and finite.first_non_finite(after) is None
    return after, step + len(nll_S), sound


def _run_one_by_one(run: TrainingRun, state: TrainState, step: int, number: int | None = None) -> Update | None:
    """Makes the updates of one execution one by one, up to update `number` or the first that is not finite."""
    epoch, B, num_words = step // run.schedule.steps_per_epoch, run.program.batch_size, len(run.data.vocabulary)
    positions_T, end = run.positions(epoch), run.schedule.next_boundary(step)
    for current in range(step + 1, end + 1):
        first = (current - 1) % run.schedule.steps_per_epoch * B
        positions_B = positions_T[first : first + B]
        num_decayed = end - step if current == end else 0
        after, nll, grads = _update(
            run.program, state, run.tokens_T, positions_B, run.hyperparameters, run.proposal, num_decayed
        )
        not_finite = _first_non_finite(state, nll, grads, after)
        if current == number or not_finite is not None:
            unshard = functools.partial(run.program.sharding.unshard, num_words=num_words)
            return Update(
                number=current,
                epoch=epoch,
                first=first,
                positions=tuple(np.asarray(positions_B).tolist()),
                loss=float(np.asarray(nll)),
                norms=finite.norms(unshard(state.params)),
                gradient_norms=finite.norms(unshard(grads)),
                not_finite=not_finite,
            )
        state = after
    return None


@functools.partial(jax.jit, static_argnames=('program', 'num_decayed'))
def _update(
    program: Program,
    state: TrainState,
    tokens_T: jax.Array,
    positions_B: jax.Array,
    hyperparameters: Hyperparameters,
    proposal: Any,
    num_decayed: int,
) -> tuple[TrainState, jax.Array, Any]:
    """Makes one update, and after it the decay of `num_decayed` updates. Returns: the state, NLL and gradients."""
    batch = step_lib.batch(program, tokens_T, positions_B)
    grads = step_lib.gradients(program, state, *batch, hyperparameters, proposal)
    after = step_lib.apply_gradients(program, state, grads, hyperparameters)
    if num_decayed:
        params = step_lib.decay(program, after.params, after.step - num_decayed, hyperparameters, num_decayed)
        after = dataclasses.replace(after, params=params)
    grad_tree = step_lib.dense_tree(program, state.params, grads)
    return after, grads.nll, program.sharding.constrain_replicated(grad_tree)


def _first_non_finite(before: TrainState, nll: jax.Array, grads: Any, after: TrainState) -> str | None:
    if (name := finite.first_non_finite(before)) is not None:
        return f'{name.removeprefix("params.")} before it'
    if not np.isfinite(np.asarray(nll)):
        return 'its loss'
    if (name := finite.first_non_finite(grads)) is not None:
        return f'its gradient of {name}'
    name = finite.first_non_finite(after)
    return None if name is None else f'{name.removeprefix("params.")} after it'
