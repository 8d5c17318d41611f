"""One update, and chunks of updates: pure functions of a training state.

Dims: S updates, B batch, T words, N context words.
"""

import dataclasses
import functools
from typing import Any, cast

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from nplm_jax.config import Settings
from nplm_jax.data import dataset
from nplm_jax.distributed.sharding import ONE_DEVICE, MeshSharding
from nplm_jax.models.body import State
from nplm_jax.models.network import Network
from nplm_jax.outputs.output_layer import BIAS, Params, SparseOutputLayer
from nplm_jax.training import optimizer_plugin
from nplm_jax.training.objective import Gradients, dense_gradients, sparse_gradients
from nplm_jax.training.optimizers import Hyperparameters, Optimizer, make_optimizer, updates_rows
from nplm_jax.training.sparse_rows import Scales, add_rows, mix, sum_rows, table_gradients, table_names
from nplm_jax.utils.errors import require


@flax.struct.dataclass
class TrainState:
    """Everything that an update changes.

    Attributes:
        params: The parameters.
        opt_state: The optimizer's state.
        step: The number of updates made, int32.
        carry: The body's state for the next update; None for a window.
        average: The running average of the parameters; None where `train.average` is 0.
        output_state: The output layer's state; None for most.
        scales: What the arrays of the tables stand for within a chunk of sparse updates; None outside.
    """

    params: Params
    opt_state: optax.OptState
    step: jax.Array
    carry: State = None
    average: Params | None = None
    output_state: Any = None
    scales: Scales | None = None


@flax.struct.dataclass
class RunInputs:
    """The arrays that every update of a run reads.

    Attributes:
        hyperparameters: The run's hyperparameters: see `optimizers.HYPERPARAMETERS`.
        tokens_T: The words to which positions refer, int32: those of `word_source.Words`; None where batches are given.
        proposal: The distribution that a sampled loss draws words from; None for other losses.
    """

    hyperparameters: Any
    tokens_T: Any = None
    proposal: Any = None


@dataclasses.dataclass(frozen=True)
class Program:
    """Everything that is static in an update; equal programs share their compiled code.

    Attributes:
        network: The network.
        optimizer: The chain and its learning rate.
        batch_size: Words per update.
        steps_per_epoch: Updates per epoch.
        scatters_updates: Whether an update changes only the rows that have a gradient: see `updates_rows`.
        num_parts: Number of parts in which a batch is computed.
        average_decay: The decay of the parameters' average per update; 0 for no average.
        sharding: The sharding of the state.
    """

    network: Network
    optimizer: Optimizer
    batch_size: int
    steps_per_epoch: int
    scatters_updates: bool
    num_parts: int = 1
    average_decay: float = 0.0
    sharding: MeshSharding = ONE_DEVICE


def make_program(
    settings: Settings, network: Network, steps_per_epoch: int, sharding: MeshSharding = ONE_DEVICE
) -> Program:
    """Returns the program of a run. Runs whose settings differ only in `HYPERPARAMETERS` get equal programs."""
    total_steps = steps_per_epoch * settings.train.epochs
    return Program(
        network=network,
        optimizer=make_optimizer(settings, total_steps, network.tables, network.body.rows_are_outputs),
        batch_size=settings.train.batch_size,
        steps_per_epoch=steps_per_epoch,
        scatters_updates=network.output.uses_sparse_updates and updates_rows(settings),
        num_parts=settings.train.accumulate,
        average_decay=settings.train.average,
        sharding=dataclasses.replace(sharding, paddings=network.paddings),
    )


@functools.partial(jax.jit, static_argnames='program')  # one compilation instead of one per operation
def init_state(program: Program, hyperparameters: Hyperparameters, bias_V: np.ndarray | None = None) -> TrainState:
    """Returns the state before the first update, on one device: a pure function of the seed.

    Args:
        program: The run's program.
        hyperparameters: The run's hyperparameters: the seed, and what an optimizer takes from the others.
        bias_V: Initial b, float32; zeros when None.
    """
    network = program.network
    key = jax.random.fold_in(jax.random.key(hyperparameters['seed']), 0)
    params = network.init(key, bias_V)
    carry = network.body.start(network.body.num_streams(program.batch_size))
    average = params if program.average_decay else None
    output_state = network.output.init_state(network.vocabulary_size)
    opt_state = program.optimizer.chain(hyperparameters).init(params)
    averages_twice = program.average_decay > 0 and optimizer_plugin.averages(opt_state)
    require(not averages_twice, 'train.average', program.average_decay, 'must be 0 with a schedule-free optimizer')
    return TrainState(params, opt_state, jnp.zeros((), jnp.int32), carry, average, output_state)


def compute_gradients(
    program: Program, state: TrainState, contexts_BxN: jax.Array, targets_B: jax.Array, inputs: RunInputs
) -> Gradients:
    """Returns the gradients of one batch. Arguments as of `train_step`."""
    network = program.network
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(inputs.hyperparameters['seed']), 2), state.step)
    starts_epoch = state.step % program.steps_per_epoch == 0  # then no words have been read
    start = network.body.start(network.body.num_streams(program.batch_size))
    carry = jax.tree.map(lambda first, carried: jnp.where(starts_epoch, first, carried), start, state.carry)
    ids_SxL = contexts_BxN.reshape(network.body.num_streams(program.batch_size), -1)
    batch, rest = (state.params, network, ids_SxL, targets_B), (carry, key, program.sharding, program.num_parts)
    if network.output.uses_sparse_updates:
        return sparse_gradients(*batch, inputs.proposal, *rest, state.output_state, state.scales)
    return dense_gradients(*batch, *rest)


def apply_gradients(program: Program, state: TrainState, gradients: Gradients, inputs: RunInputs) -> TrainState:
    """Returns the state after the update with these gradients. `state.scales` is not None if the update scatters."""
    optimizer, hyperparameters, step = program.optimizer, inputs.hyperparameters, state.step
    chain = optimizer.chain(hyperparameters)
    kept = jnp.minimum(program.average_decay, (step + 1) / (step + 2))  # a plain mean at first
    scales, average, output_state = state.scales, state.average, state.output_state
    if scales is not None:
        assert gradients.rows is not None
        grads, rows = table_gradients(gradients.grads, gradients.rows, program.network.output_tables)
        if optimizer.rule.sums_rows:
            for name, ids_R in rows.items():
                rows[name], grads[name] = sum_rows(ids_R, grads[name], len(state.params[name]))
        updates, opt_state = chain.update(grads, state.opt_state, state.params, rows=rows, step=step)
        updates = program.sharding.constrain_replicated(updates)
        factor = optimizer.table_factor(hyperparameters, step)
        scales, params, average = scales.update(state.params, average, updates, rows, factor, kept)
    else:
        grads = dense_grads(program, state.params, gradients)
        updates, opt_state = chain.update(grads, state.opt_state, state.params, step=step)
        params = optax.apply_updates(state.params, updates)
        average = None if average is None else mix(kept, average, params)
    if output_state is not None:
        output, bias_grads = cast(SparseOutputLayer, program.network.output), gradients.grads[1][BIAS]
        bias_grads = program.sharding.constrain_replicated(bias_grads)
        output_state = output.update_state(output_state, inputs.proposal, gradients.rows, bias_grads)
    state = TrainState(params, opt_state, step + 1, gradients.carry, average, output_state)
    return dataclasses.replace(program.sharding.constrain(state), scales=scales)


def evaluation_params(program: Program, state: TrainState) -> Params:
    """Returns the parameters that validation evaluates and that are the result: the average, if there is one."""
    if state.average is not None:
        return state.average
    rows_are_outputs = program.network.body.rows_are_outputs
    return optimizer_plugin.evaluation_params(state.opt_state, state.params, rows_are_outputs)


def dense_grads(program: Program, params: Params, gradients: Gradients) -> Params:
    """Returns gradients in the structure of the parameters, with zeros in the rows that sparse ones leave out."""
    if gradients.rows is None:
        return gradients.grads
    grads, rows = table_gradients(gradients.grads, gradients.rows, program.network.output_tables)
    return add_rows(jax.tree.map(jnp.zeros_like, params), program.sharding.constrain_replicated(grads), rows)


def train_step(
    program: Program, state: TrainState, contexts_BxN: jax.Array, targets_B: jax.Array, inputs: RunInputs
) -> tuple[TrainState, jax.Array]:
    """Makes one update.

    Args:
        program: The run's program.
        state: The state before it.
        contexts_BxN: Word ids in reading order, int32.
        targets_B: The words that follow, int32.
        inputs: The run's inputs.

    Returns:
        The state after the update, and the batch's mean NLL before it, nats per word.
    """
    state = _with_scales(program, state)
    gradients = compute_gradients(program, state, contexts_BxN, targets_B, inputs)
    return _without_scales(program, apply_gradients(program, state, gradients, inputs)), gradients.nll


def train_steps(
    program: Program, state: TrainState, positions_SxB: jax.Array, inputs: RunInputs
) -> tuple[TrainState, jax.Array]:
    """Makes S updates, each on the words at its positions. The result does not depend on S.

    Returns:
        The new state and the mean NLL of each batch, float32, S.
    """

    def step(state: TrainState, positions_B: jax.Array) -> tuple[TrainState, jax.Array]:
        batch = dataset.windows(inputs.tokens_T, positions_B, program.network.body.training_context)
        gradients = compute_gradients(program, state, *batch, inputs)
        state = apply_gradients(program, state, gradients, inputs)
        # Sparse updates gather rows, so a row should be contiguous in memory; dense products want the words contiguous.
        return (state if program.scatters_updates else program.sharding.vocab_minor_layout(state)), gradients.nll

    state, nll_S = jax.lax.scan(step, _with_scales(program, state), positions_SxB)
    return _without_scales(program, state), nll_S


def _with_scales(program: Program, state: TrainState) -> TrainState:
    if not program.scatters_updates:
        return state
    return dataclasses.replace(state, scales=Scales.start(table_names(program.network.output_tables)))


def _without_scales(program: Program, state: TrainState) -> TrainState:
    if state.scales is None:
        return state
    params, average = state.scales.apply(state.params, state.average)
    return program.sharding.constrain(dataclasses.replace(state, params=params, average=average, scales=None))


@functools.partial(jax.jit, static_argnames=('program', 'num_steps'), donate_argnames='state')
def execute_steps(
    program: Program, state: TrainState, positions_T: jax.Array, first: int, num_steps: int, inputs: RunInputs
) -> tuple[TrainState, jax.Array]:
    """Compiles and runs `train_steps` on consecutive elements of `positions_T`, from index `first` on.

    The state is donated: use only the one returned.
    """
    B = program.batch_size
    positions_SxB = jax.lax.dynamic_slice(positions_T, (first,), (num_steps * B,)).reshape(num_steps, B)
    return train_steps(program, state, positions_SxB, inputs)
