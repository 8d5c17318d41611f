"""Runs that differ only in numbers, trained together: `jax.vmap` over their updates, divided over the devices.

Everything but the updates is done run by run: reading, validating, saving, stopping, evaluating. Dims: R runs, S
updates.
"""

import dataclasses
import functools
import operator
import time
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from nplm_jax import config as config_lib
from nplm_jax.config import Settings
from nplm_jax.training.loop import Chunk, Interrupted, Trainer, out_of_memory_as_bad_input, run_chunk
from nplm_jax.training.optimizers import Hyperparameters
from nplm_jax.training.step import Program, TrainState, train_steps
from nplm_jax.utils.errors import BadInput, NonFiniteError

# The keys that runs trained together may differ in: no compiled program depends on them (`Hyperparameters`).
BATCHED_HYPERPARAMETERS = (
    'seed',
    'optimizer.learning_rate',
    'optimizer.decay',
    'optimizer.paper.epsilon_0',
    'optimizer.paper.r',
    'optimizer.paper.decay',
)
RUNS = 'runs'  # the mesh axis over which runs are divided
RUN_ERRORS = (BadInput, NonFiniteError, Interrupted)  # what ends one run and leaves the others


def group_compatible(all_settings: Iterable[Settings]) -> list[list[int]]:
    """Groups runs that can train together.

    Args:
        all_settings: The settings of each run.

    Returns:
        The runs' numbers, in groups, in the order of their first ones. Runs over several devices are groups of one.
    """
    members: dict[Any, list[int]] = {}
    for number, settings in enumerate(all_settings):
        one_device = settings.parallel.data == settings.parallel.model == 1
        members.setdefault(_common(settings) if one_device else number, []).append(number)
    return list(members.values())


def _common(settings: Settings) -> Settings:
    """Returns the settings with the keys replaced by which compatible runs may differ."""
    changes = dict.fromkeys(BATCHED_HYPERPARAMETERS, 1.0) | {'seed': 0, 'name': 'x'}
    paper = dataclasses.replace(settings.paper, row='', train=0.0, valid=0.0, test=0.0)
    return config_lib.replace(dataclasses.replace(settings, paper=paper), changes)


def fit_many(trainers: Sequence[Trainer]) -> list[Exception | None]:
    """Trains several runs together: `loop.fit` for each, with the updates of runs at the same step in one program.

    A run that is behind, as a kill may leave it, first catches up with the others.

    Returns:
        For each run the BadInput, NonFiniteError or Interrupted that ended it, else None.
    """
    errors: list[Exception | None] = [None] * len(trainers)
    with out_of_memory_as_bad_input():
        while active := [i for i, trainer in enumerate(trainers) if not trainer.done and errors[i] is None]:
            lowest = min(trainers[i].step for i in active)
            chunks = {}
            for i in (i for i in active if trainers[i].step == lowest):
                try:
                    chunks[i] = trainers[i].next_chunk()
                except RUN_ERRORS as error:
                    errors[i] = error
            for i, result in zip(chunks, run_chunks(list(chunks.values()), len(trainers))):
                try:
                    trainers[i].finish_chunk(*result)
                except RUN_ERRORS as error:
                    errors[i] = error
    return errors


def run_chunks(chunks: Sequence[Chunk], max_runs: int) -> list[tuple[TrainState, np.ndarray, float]]:
    """Runs chunks of equal programs, at the same update, in one execution.

    Pads the group to max_runs // 2**k by repeating the last chunk, which bounds the number of compilations.

    Returns:
        What `loop.run_chunk` returns, for each.
    """
    if len(chunks) <= 1:
        return [run_chunk(chunk) for chunk in chunks]
    size = max_runs
    while size // 2 >= len(chunks):
        size //= 2
    padded = [*chunks, *[chunks[-1]] * (size - len(chunks))]
    program, first, num_steps = chunks[0].program, chunks[0].first, chunks[0].num_steps
    B = program.batch_size
    positions_RxSxB = np.stack(
        [np.asarray(c.positions_T)[first * B : (first + num_steps) * B].reshape(num_steps, B) for c in padded]
    )
    stack = functools.partial(jax.tree.map, lambda *leaves: np.stack(leaves))
    runs = stack(*(c.state for c in padded)), positions_RxSxB, stack(*(c.hyperparameters for c in padded))
    mesh = _mesh(size)
    divided, replicated = (NamedSharding(mesh, spec) for spec in (PartitionSpec(RUNS), PartitionSpec()))
    shared = jax.device_put(jax.tree.map(np.asarray, (chunks[0].tokens_T, chunks[0].proposal)), replicated)
    started = time.perf_counter()
    states, nll_RxS = _execute(program, mesh, *jax.device_put(runs, divided), *shared)
    nll_RxS = np.asarray(nll_RxS)
    seconds = time.perf_counter() - started
    states = jax.tree.map(np.asarray, states)  # on no device in particular, as a run alone has them
    return [(jax.tree.map(operator.itemgetter(r), states), nll_RxS[r], seconds) for r in range(len(chunks))]


@functools.partial(jax.jit, static_argnames=('program', 'mesh'), donate_argnames='states')
def _execute(
    program: Program,
    mesh: Mesh,
    states: TrainState,
    positions_RxSxB: jax.Array,
    hyperparameters: Hyperparameters,
    tokens_T: jax.Array,
    proposal: Any,
) -> tuple[TrainState, jax.Array]:
    """Runs `step.train_steps` for R runs. Returns: the new states, and the mean NLL of each batch, R x S."""

    def run(
        state: TrainState, positions_SxB: jax.Array, hyperparameters: Hyperparameters, tokens_T: Any, proposal: Any
    ) -> tuple[TrainState, jax.Array]:
        return train_steps(program, state, tokens_T, positions_SxB, hyperparameters, proposal)

    runs, replicated = PartitionSpec(RUNS), PartitionSpec()
    mapped = jax.shard_map(
        jax.vmap(run, (0, 0, 0, None, None)),
        mesh=mesh,
        in_specs=(runs, runs, runs, replicated, replicated),
        out_specs=runs,
        check_vma=False,  # nothing crosses the devices
    )
    return mapped(states, positions_RxSxB, hyperparameters, tokens_T, proposal)


def _mesh(num_runs: int) -> Mesh:
    """Returns a mesh of as many local devices as divide the runs evenly."""
    devices = jax.local_devices()
    size = max(d for d in range(1, len(devices) + 1) if num_runs % d == 0)
    return jax.make_mesh((size,), (RUNS,), axis_types=(AxisType.Auto,), devices=devices[:size])
