"""Trains runs that differ only in hyperparameters together: `jax.vmap` over their updates, divided over the devices.

Only the updates are vmapped: each run reads, validates, saves and stops by itself. Dims: R runs, S updates.
"""

import dataclasses
import functools
import operator
import time
from collections.abc import Sequence
from itertools import starmap

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from nplm_jax.data.stream import RARE_ID
from nplm_jax.training.loop import Interrupted, Trainer
from nplm_jax.training.step import Program, RunInputs, TrainState, execute_steps, train_steps
from nplm_jax.training.training_run import Chunk, out_of_memory_as_bad_input
from nplm_jax.utils.errors import BadInput, NonFiniteError

RUNS = 'runs'  # the mesh axis over which runs are divided
RUN_ERRORS = (BadInput, NonFiniteError, Interrupted)  # errors that end one run of a group and not the others


def fit_many(trainers: Sequence[Trainer]) -> list[Exception | None]:
    """Trains several runs together: `loop.fit` for each, with the updates of runs at the same step in one program.

    Runs resume from their own checkpoints; the ones at the lowest step run first.

    Returns:
        For each run the BadInput, NonFiniteError or Interrupted that ended it, else None.
    """
    errors: list[Exception | None] = [None] * len(trainers)
    with out_of_memory_as_bad_input():
        while active := [i for i, trainer in enumerate(trainers) if not trainer.done and errors[i] is None]:
            lowest = min(trainers[i].progress.step for i in active)
            chunks = {}
            for i in (i for i in active if trainers[i].progress.step == lowest):
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
        For each the state after it, the mean NLL of each batch and the seconds.
    """
    started = time.perf_counter()
    if len(chunks) <= 1:
        return [
            (state, np.asarray(nll_S), time.perf_counter() - started) for state, nll_S in starmap(execute_steps, chunks)
        ]
    size = max_runs
    while size // 2 >= len(chunks):
        size //= 2
    padded = [*chunks, *[chunks[-1]] * (size - len(chunks))]
    program, first, num_steps = chunks[0].program, int(chunks[0].first), chunks[0].num_steps
    B = program.batch_size
    tokens, offsets = _join_words([c.inputs.tokens_T for c in padded], program.network.layout.lookback + 1)
    positions_RxT = np.stack(
        [offset + np.asarray(c.positions_T)[first : first + num_steps * B] for offset, c in zip(offsets, padded)]
    )
    stack = functools.partial(jax.tree.map, lambda *leaves: np.stack(leaves))
    runs = stack(*(c.state for c in padded)), positions_RxT, stack(*(c.inputs.hyperparameters for c in padded))
    mesh = _mesh(size)
    divided, replicated = (NamedSharding(mesh, spec) for spec in (PartitionSpec(RUNS), PartitionSpec()))
    states, positions_RxT, hyperparameters = jax.device_put(runs, divided)
    shared = jax.tree.map(np.asarray, dataclasses.replace(chunks[0].inputs, hyperparameters=None, tokens_T=tokens))
    inputs = dataclasses.replace(jax.device_put(shared, replicated), hyperparameters=hyperparameters)
    started = time.perf_counter()
    states, nll_RxS = _execute(program, mesh, num_steps, states, positions_RxT, inputs)
    nll_RxS = np.asarray(nll_RxS)
    seconds = time.perf_counter() - started
    states = jax.tree.map(np.asarray, states)  # NumPy arrays: `execute_steps` places them itself
    return [(jax.tree.map(operator.itemgetter(r), states), nll_RxS[r], seconds) for r in range(len(chunks))]


def _join_words(tokens: Sequence[jax.Array], num_context: int) -> tuple[np.ndarray, list[int]]:
    """Returns the words of all runs as one array, and where those of each run start in it.

    Runs on one corpus share it (`Dataset.device_tokens_T`); runs that read it from a mapped file have their own words.

    Args:
        tokens: The words of each run.
        num_context: The rare-word symbols before those of each run, so that no context reaches into another run's.
    """
    if all(array is tokens[0] for array in tokens):
        return np.asarray(tokens[0]), [0] * len(tokens)
    padded = [np.pad(np.asarray(array), (num_context, 0), constant_values=RARE_ID) for array in tokens]
    starts = np.cumsum([0, *map(len, padded)]) + num_context
    return np.concatenate(padded), starts[:-1].tolist()


@functools.partial(jax.jit, static_argnames=('program', 'mesh', 'num_steps'), donate_argnames='states')
def _execute(
    program: Program, mesh: Mesh, num_steps: int, states: TrainState, positions_RxT: jax.Array, inputs: RunInputs
) -> tuple[TrainState, jax.Array]:
    """Runs `step.train_steps` for R runs, which differ in their hyperparameters.

    Returns:
        The new states, and the mean NLL of each batch, R x S.
    """
    runs, replicated = PartitionSpec(RUNS), PartitionSpec()

    def train(state: TrainState, positions_T: jax.Array, inputs: RunInputs) -> tuple[TrainState, jax.Array]:
        return train_steps(program, state, positions_T, 0, num_steps, inputs)

    mapped = jax.shard_map(
        jax.vmap(train, (0, 0, RunInputs(0, teacher_params=None))),
        mesh=mesh,
        in_specs=(runs, runs, RunInputs(runs, replicated, replicated, replicated)),
        out_specs=runs,
        check_vma=False,  # nothing is sent between devices
    )
    return mapped(states, positions_RxT, inputs)


def _mesh(num_runs: int) -> Mesh:
    """Returns a mesh of the largest number of local devices that divides the runs evenly."""
    devices = jax.local_devices()
    size = max(d for d in range(1, len(devices) + 1) if num_runs % d == 0)
    return jax.make_mesh((size,), (RUNS,), axis_types=(AxisType.Auto,), devices=devices[:size])
