"""One update, and many updates in one execution: pure functions of a training state.

Dims: S updates, B batch, T words, N context words.
"""

import dataclasses
import functools
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from nplm_jax.config import Settings
from nplm_jax.data import dataset
from nplm_jax.distributed.sharding import ONE_DEVICE, MeshSharding
from nplm_jax.models.body import Carry
from nplm_jax.models.network import Network
from nplm_jax.outputs.output_layer import Params
from nplm_jax.training.objective import Gradients, dense_gradients, sparse_gradients
from nplm_jax.training.optimizers import Hyperparameters, LearningRate, learning_rate_schedule, make_optimizer
from nplm_jax.training.sparse_rows import apply_weight_decay, scatter_add_rows


@flax.struct.dataclass
class TrainState:
    """Everything that an update changes.

    Attributes:
        params: The parameters.
        opt_state: What the optimizer keeps.
        step: How many updates there were, int32.
        carry: What the body's streams carry on to the next update; None for a window.
        average: The running average of the parameters; None where `train.average` is 0.
    """

    params: Params
    opt_state: optax.OptState
    step: jax.Array
    carry: Carry = None
    average: Params | None = None


@dataclasses.dataclass(frozen=True)
class Program:
    """Everything that is static in an update; equal programs share their compiled code.

    Attributes:
        network: The network.
        optimizer: Its `update` takes the hyperparameters as an extra argument.
        learning_rate: Of the hyperparameters and the number of the update.
        batch_size: Words of an update.
        steps_per_epoch: Updates of an epoch.
        row_updates: Whether the few rows of a sparse gradient are updated alone. It takes a sparse output layer and an
            optimizer that keeps nothing of a parameter.
        average_decay: The decay of the parameters' average, an update; 0 for no average.
        sharding: Where the state lies.
    """

    network: Network
    optimizer: optax.GradientTransformationExtraArgs
    learning_rate: LearningRate
    batch_size: int
    steps_per_epoch: int
    row_updates: bool
    average_decay: float = 0.0
    sharding: MeshSharding = ONE_DEVICE


def make_program(
    settings: Settings, network: Network, steps_per_epoch: int, sharding: MeshSharding = ONE_DEVICE
) -> Program:
    """Returns the program of a run. Runs whose settings differ in `Hyperparameters` alone get equal programs."""
    optimizer, train = settings.optimizer, settings.train
    # What the hyperparameters hold is no part of the program.
    paper = dataclasses.replace(optimizer.paper, epsilon_0=1.0, r=0.0, decay=0.0)
    optimizer = dataclasses.replace(optimizer, learning_rate=1.0, decay=0.0, paper=paper)
    parts = _optimizer_and_schedule(optimizer, steps_per_epoch * train.epochs, train.batch_size)
    row_updates = network.output.uses_sparse_updates and optimizer.is_plain_sgd
    return Program(network, *parts, train.batch_size, steps_per_epoch, row_updates, train.average, sharding)


@functools.cache  # equal arguments give the same functions, which programs are compared by
def _optimizer_and_schedule(
    settings: Any, total_steps: int, batch_size: int
) -> tuple[optax.GradientTransformationExtraArgs, LearningRate]:
    learning_rate = learning_rate_schedule(settings, total_steps, batch_size)
    return make_optimizer(settings, learning_rate), learning_rate


@functools.partial(jax.jit, static_argnames='program')  # one program, where op by op a start compiles a dozen
def init_state(program: Program, hyperparameters: Hyperparameters, bias_V: np.ndarray | None = None) -> TrainState:
    """Returns the state before the first update, on one device: a pure function of the seed.

    Args:
        program: The run's program.
        hyperparameters: Of which the seed is read.
        bias_V: What b starts from, float32; zeros when None.
    """
    network = program.network
    key = jax.random.fold_in(jax.random.key(hyperparameters.seed), 0)
    params = network.init(key, bias_V)
    carry = network.body.start(network.body.num_streams(program.batch_size))
    average = params if program.average_decay else None
    return TrainState(params, program.optimizer.init(params), jnp.zeros((), jnp.int32), carry, average)


def batch(program: Program, tokens_T: jax.Array, positions_B: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the contexts and the targets of an update at these positions."""
    return dataset.windows(tokens_T, positions_B, program.network.body.num_context)


def gradients(
    program: Program,
    state: TrainState,
    contexts_BxN: jax.Array,
    targets_B: jax.Array,
    hyperparameters: Hyperparameters,
    proposal: Any = None,
) -> Gradients:
    """Returns the gradients of one batch. Arguments as of `train_step`."""
    network = program.network
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(hyperparameters.seed), 2), state.step)
    starts_epoch = state.step % program.steps_per_epoch == 0  # with no words read yet
    start = network.body.start(network.body.num_streams(program.batch_size))
    carry = jax.tree.map(lambda first, carried: jnp.where(starts_epoch, first, carried), start, state.carry)
    batch = state.params, network, contexts_BxN, targets_B
    if network.output.uses_sparse_updates:
        return sparse_gradients(*batch, proposal, carry, key, program.sharding)
    return dense_gradients(*batch, hyperparameters.weight_decay, carry, key, program.sharding)


def apply_gradients(
    program: Program, state: TrainState, grads: Gradients, hyperparameters: Hyperparameters
) -> TrainState:
    """Returns the state after the update that these gradients make."""
    update = functools.partial(program.optimizer.update, hyperparameters=hyperparameters)
    if program.row_updates:
        assert grads.rows is not None
        updates, opt_state = update(grads.trees, state.opt_state)
        shared, per_example = program.sharding.constrain_replicated(updates)
        params = scatter_add_rows(state.params, shared, per_example, grads.rows, program.network.output_tables)
    else:
        grad_tree = dense_tree(program, state.params, grads)
        if grads.rows is not None:  # sparse gradients leave R out
            decay = hyperparameters.weight_decay
            grad_tree = jax.tree.map(lambda g, p: g + decay * p if p.ndim > 1 else g, grad_tree, state.params)
        updates, opt_state = update(grad_tree, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
    return program.sharding.constrain(TrainState(params, opt_state, state.step + 1, grads.carry, state.average))


def dense_tree(program: Program, params: Params, grads: Gradients) -> Params:
    """Returns gradients in the structure of the parameters, with zeros in the rows that sparse ones leave out."""
    if grads.rows is None:
        return grads.trees
    zeros = jax.tree.map(jnp.zeros_like, params)
    shared, per_example = program.sharding.constrain_replicated(grads.trees)
    return scatter_add_rows(zeros, shared, per_example, grads.rows, program.network.output_tables)


def train_step(
    program: Program,
    state: TrainState,
    contexts_BxN: jax.Array,
    targets_B: jax.Array,
    hyperparameters: Hyperparameters,
    proposal: Any = None,
) -> tuple[TrainState, jax.Array]:
    """Makes one update.

    Args:
        program: The run's program.
        state: The state before it.
        contexts_BxN: Word ids in reading order, int32.
        targets_B: The words that follow, int32.
        hyperparameters: The run's numbers.
        proposal: What a sampled loss draws words from.

    Returns:
        The state after it and the batch's mean NLL before it, nats a word. With `program.row_updates` the regulariser
        is left to `decay`.
    """
    grads = gradients(program, state, contexts_BxN, targets_B, hyperparameters, proposal)
    return apply_gradients(program, state, grads, hyperparameters), grads.nll


def decay(
    program: Program, params: Params, step: jax.Array, hyperparameters: Hyperparameters, num_steps: int
) -> Params:
    """Returns the parameters after the decay of the `num_steps` updates from `step` on, where `train_step` omits it."""
    if not program.row_updates:
        return params
    rate_S = jax.vmap(lambda s: program.learning_rate(hyperparameters, s))(step + jnp.arange(num_steps))
    return apply_weight_decay(params, jnp.prod(1 - rate_S * hyperparameters.weight_decay))


def train_steps(
    program: Program,
    state: TrainState,
    tokens_T: jax.Array,
    positions_SxB: jax.Array,
    hyperparameters: Hyperparameters,
    proposal: Any = None,
) -> tuple[TrainState, jax.Array]:
    """Makes S updates, on the words at the positions given for each.

    Deviation: with `program.row_updates` the weights decay once, by what these updates would decay them.

    Returns:
        The new state and the mean NLL of each batch, float32, S.
    """

    def step(state: TrainState, positions_B: jax.Array) -> tuple[TrainState, jax.Array]:
        state, nll = train_step(program, state, *batch(program, tokens_T, positions_B), hyperparameters, proposal)
        # Rows that are updated alone are gathered first, and the numbers of a row should lie together.
        return (state if program.row_updates else program.sharding.vocab_minor_layout(state)), nll

    after, nll_S = jax.lax.scan(step, state, positions_SxB)
    params = decay(program, after.params, state.step, hyperparameters, len(positions_SxB))
    average = update_average(program, after.average, params, state.step, len(positions_SxB))
    return dataclasses.replace(after, params=params, average=average), nll_S


def update_average(
    program: Program, average: Params | None, params: Params, step: jax.Array, num_steps: int
) -> Params | None:
    """Returns the running average after `num_steps` updates from `step` on: a plain mean at first, then exponential."""
    if average is None:
        return None
    decay = jnp.minimum(program.average_decay**num_steps, step / (step + num_steps))
    return jax.tree.map(lambda old, new: decay * old + (1 - decay) * new, average, params)


@functools.partial(jax.jit, static_argnames=('program', 'num_steps'), donate_argnames='state')
def execute_steps(
    program: Program,
    state: TrainState,
    tokens_T: jax.Array,
    positions_T: jax.Array,
    first: int,
    num_steps: int,
    hyperparameters: Hyperparameters,
    proposal: Any = None,
) -> tuple[TrainState, jax.Array]:
    """Compiles and runs `train_steps` on the positions of one epoch from update `first` of the epoch on.

    The state is donated: use only the one returned.
    """
    B = program.batch_size
    positions_SxB = jax.lax.dynamic_slice(positions_T, (first * B,), (num_steps * B,)).reshape(num_steps, B)
    return train_steps(program, state, tokens_T, positions_SxB, hyperparameters, proposal)
