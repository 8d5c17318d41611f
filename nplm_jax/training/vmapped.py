"""Trains several runs together that differ only in hyperparameters, using `jax.vmap` over their updates.

The runs are sharded over devices. Only the updates are vmapped. Each run reads data, validates, saves and stops
independently of the others.

Dims: R runs, S updates.
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
from nplm_jax.training.step import Program, StepInputs, TrainState, execute_steps, train_steps
from nplm_jax.training.train import Interrupted, Trained, Training
from nplm_jax.training.training_run import Chunk, ChunkResult, out_of_memory_as_bad_input
from nplm_jax.utils.errors import BadInput, NonFiniteError

RUNS = 'runs'  # the mesh axis over which runs are sharded
RUN_ERRORS = (BadInput, NonFiniteError, Interrupted)  # errors that end only one run in a group


def fit_many(trainings: Sequence[Training]) -> list[Trained | Exception]:
    """Trains several runs in the same way as `train.fit`, but executes the updates of runs at the same step together.

    Each run resumes from its own checkpoint. Runs with the fewest completed updates are advanced first, until they
    reach the others. A stop signal stops all runs.

    Returns:
        For each run, its result, or the exception that ended it (BadInput, NonFiniteError or Interrupted).
    """
    outcomes: dict[int, Trained | Exception] = {}
    chunks: dict[int, Chunk] = {}  # the next chunk of each run

    def advance(run: int, result: ChunkResult | None) -> None:
        chunks.pop(run, None)
        try:
            chunks[run] = trainings[run].send(result)
        except StopIteration as stop:
            outcomes[run] = stop.value
        except RUN_ERRORS as error:
            outcomes[run] = error

    with out_of_memory_as_bad_input():
        for run in range(len(trainings)):
            advance(run, None)
        while chunks:
            steps = {run: int(chunk.state.step) for run, chunk in chunks.items()}
            group = [run for run, step in steps.items() if step == min(steps.values())]
            results = run_chunks([chunks[run] for run in group], len(trainings))
            for run, result in zip(group, results):
                advance(run, result)
            if any(isinstance(outcome, Interrupted) for outcome in outcomes.values()):
                for run in list(chunks):  # the runs that yielded a chunk before the signal
                    advance(run, None)
    return [outcomes[run] for run in range(len(trainings))]


def run_chunks(chunks: Sequence[Chunk], max_runs: int) -> list[ChunkResult]:
    """Executes several chunks in one call. The chunks must have equal programs and start at the same update.

    To limit the number of compilations, the last chunk is repeated until the number of chunks is max_runs // 2**k for
    some k.

    Returns:
        The result of each chunk.
    """
    started = time.perf_counter()
    if len(chunks) <= 1:
        return [
            ChunkResult(state, np.asarray(nll_S), time.perf_counter() - started)
            for state, nll_S in starmap(execute_steps, chunks)
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
    runs = stack(*(c.state for c in padded)), positions_RxT
    mesh = _mesh(size)
    divided, replicated = (NamedSharding(mesh, spec) for spec in (PartitionSpec(RUNS), PartitionSpec()))
    states, positions_RxT = jax.device_put(runs, divided)
    shared = jax.tree.map(np.asarray, dataclasses.replace(chunks[0].inputs, tokens_T=tokens))
    inputs = jax.device_put(shared, replicated)
    started = time.perf_counter()
    states, nll_RxS = _execute(program, mesh, num_steps, states, positions_RxT, inputs)
    nll_RxS = np.asarray(nll_RxS)
    seconds = time.perf_counter() - started
    states = jax.tree.map(np.asarray, states)  # `execute_steps` can place NumPy arrays on any device
    return [ChunkResult(jax.tree.map(operator.itemgetter(r), states), nll_RxS[r], seconds) for r in range(len(chunks))]


def _join_words(tokens: Sequence[jax.Array], num_context: int) -> tuple[np.ndarray, list[int]]:
    """Concatenates the words of all runs into one array.

    If several runs train on the same corpus array (`Dataset.device_tokens_T`), its words are included only once. Runs
    that read a mapped file have separate arrays.

    Args:
        tokens: The words of each run.
        num_context: The number of rare-word symbols to insert before each array. Contexts therefore contain no words of
            another run.

    Returns:
        The words, and for each run, the position at which its words start.
    """
    if all(array is tokens[0] for array in tokens):
        return np.asarray(tokens[0]), [0] * len(tokens)
    padded = [np.pad(np.asarray(array), (num_context, 0), constant_values=RARE_ID) for array in tokens]
    starts = np.cumsum([0, *map(len, padded)]) + num_context
    return np.concatenate(padded), starts[:-1].tolist()


@functools.partial(jax.jit, static_argnames=('program', 'mesh', 'num_steps'), donate_argnames='states')
def _execute(
    program: Program, mesh: Mesh, num_steps: int, states: TrainState, positions_RxT: jax.Array, inputs: StepInputs
) -> tuple[TrainState, jax.Array]:
    """Executes `step.train_steps` for R runs that differ only in their states and positions.

    Returns:
        The new states, and the mean NLL of each batch, R x S.
    """
    runs, replicated = PartitionSpec(RUNS), PartitionSpec()

    def train(state: TrainState, positions_T: jax.Array, inputs: StepInputs) -> tuple[TrainState, jax.Array]:
        return train_steps(program, state, positions_T, 0, num_steps, inputs)

    mapped = jax.shard_map(
        jax.vmap(train, (0, 0, None)),
        mesh=mesh,
        in_specs=(runs, runs, replicated),
        out_specs=runs,
        check_vma=False,  # devices do not communicate
    )
    return mapped(states, positions_RxT, inputs)


def _mesh(num_runs: int) -> Mesh:
    """Returns a mesh over the largest number of local devices that divides the number of runs."""
    devices = jax.local_devices()
    size = max(d for d in range(1, len(devices) + 1) if num_runs % d == 0)
    return jax.make_mesh((size,), (RUNS,), axis_types=(AxisType.Auto,), devices=devices[:size])
