"""Replays updates of a run to find the first one with non-finite numbers.

Updates are a deterministic function of the settings, the corpus and the last checkpoint. So a run checks its state only
at some boundaries, and replays from the newest checkpoint when a check fails. Dims: B batch.
"""

import contextlib
import dataclasses
import functools
import pathlib
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax import config
from nplm_jax.data import dataset
from nplm_jax.distributed import multihost
from nplm_jax.training import step as step_lib
from nplm_jax.training.checkpoints import Store
from nplm_jax.training.loop import TrainingRun, restore_or_init, run_chunk
from nplm_jax.training.step import Program, RunInputs, TrainState
from nplm_jax.utils import finite, plugins
from nplm_jax.utils.errors import NonFiniteError
from nplm_jax.utils.io import write_atomically
from nplm_jax.utils.shell import command_line, nplm_command
from nplm_jax.utils.text import to_json

FILE = 'not_finite.json'
REMEDY = 'try another --workdir with a lower optimizer.learning_rate, or optimizer.clip_norm'


@dataclasses.dataclass(frozen=True)
class ReplayedUpdate:
    """A replayed update, with the Euclidean norm of each parameter and gradient.

    Attributes:
        number: Counted from 1.
        epoch: Counted from 0.
        first: Index of its first position in the epoch's order; it takes B consecutive ones.
        positions: The positions of its words in the corpus.
        loss: The mean NLL before the update, nats per word.
        norms: The norms of the parameters before the update.
        gradient_norms: The norms of the gradients.
        non_finite: The first non-finite quantity, in the order: parameters before, loss, gradients, state after; None
            if all are finite.
    """

    number: int
    epoch: int
    first: int
    positions: tuple[int, ...]
    loss: float
    norms: dict[str, float]
    gradient_norms: dict[str, float]
    non_finite: str | None


def replay_update(run: TrainingRun, store: Store, number: int) -> ReplayedUpdate:
    """Replays update `number`, or the first non-finite update between the checkpoint before it and it."""
    state, _, progress = restore_or_init(run, store, number)
    state, step = run.program.sharding.shard(state), progress.step
    while (boundary := run.schedule.next_boundary(step)) < number:
        new_state, nll_S, _ = run_chunk(run.chunk(jax.tree.map(jnp.copy, state), step))
        if not np.isfinite(nll_S).all() or finite.first_non_finite(new_state) is not None:
            break
        state, step = new_state, boundary
    return _replay_chunk(run, state, step, min(number, boundary))


def explain(error: NonFiniteError, run: TrainingRun, store: Store, folder: pathlib.Path) -> NonFiniteError:
    """Finds the update that caused an error. Every process of a run calls this; the first process writes FILE.

    Args:
        error: The error that ended the run.
        run: The run.
        store: Its checkpoints.
        folder: Its folder.

    Returns:
        An error with the update, its batch and its norms in the message.
    """
    saved = store.latest_step()
    kept = f'the checkpoint of update {saved:,} is kept' if saved is not None else 'no checkpoint was saved yet'
    if error.detected_at is None:
        return NonFiniteError(f'{error}; {kept}; {REMEDY}')
    if multihost.is_primary():
        print(f'{error}; replaying from update {saved or 0:,} to find its cause ...', file=sys.stderr)
    update = replay_update(run, store, error.detected_at)
    if update.non_finite is None:  # possible on devices whose sums are not deterministic
        message = f'{error} (but not when these updates were replayed); {kept}; {REMEDY}'
        return NonFiniteError(message, error.detected_at)
    norms = (f'{name} {norm:.6g} ({update.gradient_norms[name]:.6g})' for name, norm in update.norms.items())
    lines = [
        f'update {update.number:,}: {update.non_finite} is not finite; {kept}; {REMEDY}',
        *describe(update),
        f'norms before the update (of gradients): {", ".join(norms)}',
    ]
    if multihost.is_primary():
        with contextlib.suppress(OSError):  # a full disk must not hide all this
            text = to_json(dataclasses.asdict(update), convert_nonfinite=str, indent=2)  # 'inf' instead of null
            write_atomically(folder / FILE, text + '\n')
            lines.append(f'all positions and norms: {folder / FILE}')
    flags = plugins.flags(config.plugin_modules(run.settings))
    command = [*nplm_command(), 'replay', f'--workdir={folder}', f'--step={update.number}', *flags]
    lines.append(f'replay this update: {command_line(command)}')
    return NonFiniteError('\n'.join(lines), error.detected_at)


def describe(update: ReplayedUpdate) -> list[str]:
    """Returns two lines of text: the batch and the loss."""
    last = update.first + len(update.positions) - 1
    positions = f'positions {min(update.positions):,} to {max(update.positions):,} of the text'
    return [
        f'batch: words {update.first:,} to {last:,} in the order of epoch {update.epoch}, {positions}',
        f'loss: {update.loss:.6g} nats per word',
    ]


def _replay_chunk(run: TrainingRun, state: TrainState, step: int, last: int) -> ReplayedUpdate:
    """Replays the updates of the chunk after `step` one by one, up to `last` or the first non-finite one."""
    epoch, B = step // run.schedule.steps_per_epoch, run.program.batch_size
    chunk = run.chunk(state, step)
    for number in range(step + 1, last + 1):
        start = chunk.first + (number - 1 - step) * B
        positions_B = chunk.positions_T[start : start + B]
        new_state, nll, grads = _update(chunk.program, state, positions_B, chunk.inputs)
        non_finite = _first_non_finite(state, nll, grads, new_state)
        if number == last or non_finite is not None:
            break
        state = new_state
    first = (number - 1) % run.schedule.steps_per_epoch * B
    unshard = functools.partial(run.program.sharding.unshard, num_rows=run.program.network.num_rows)
    return ReplayedUpdate(
        number=number,
        epoch=epoch,
        first=first,
        positions=tuple(run.words.corpus_positions(epoch, first, B).tolist()),
        loss=float(np.asarray(nll)),
        norms=finite.norms(unshard(state.params)),
        gradient_norms=finite.norms(unshard(grads)),
        non_finite=non_finite,
    )


@functools.partial(jax.jit, static_argnames='program')
def _update(
    program: Program, state: TrainState, positions_B: jax.Array, inputs: RunInputs
) -> tuple[TrainState, jax.Array, Any]:
    """Makes one update. Returns state, NLL and gradients, those of R left out."""
    batch = dataset.windows(inputs.tokens_T, positions_B, program.network.body.training_context)
    new_state, nll = step_lib.train_step(program, state, *batch, inputs)
    gradients = step_lib.compute_gradients(program, state, *batch, inputs)
    grads = step_lib.dense_grads(program, state.params, gradients)
    return new_state, nll, program.sharding.constrain_replicated(grads)


def _first_non_finite(before: TrainState, nll: jax.Array, grads: Any, after: TrainState) -> str | None:
    if (name := finite.first_non_finite(before)) is not None:
        return f'{name.removeprefix("params.")} before the update'
    if not np.isfinite(np.asarray(nll)):
        return 'the loss'
    if (name := finite.first_non_finite(grads)) is not None:
        return f'the gradient of {name}'
    name = finite.first_non_finite(after)
    return None if name is None else f'{name.removeprefix("params.")} after the update'
