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

from nplm_jax.config import OptimizerSettings, Settings
from nplm_jax.data import dataset
from nplm_jax.distributed.sharding import ONE_DEVICE, MeshSharding
from nplm_jax.models.body import Carry
from nplm_jax.models.network import Network
from nplm_jax.outputs.output_layer import BIAS, EMBEDDING, Params, SparseOutputLayer
from nplm_jax.training.objective import Gradients, penalised_nll, sparse_gradients
from nplm_jax.training.optimizers import Hyperparameters, LearningRate, learning_rate_schedule, make_optimizer
from nplm_jax.training.prior import draw_to_neighbours
from nplm_jax.training.sparse_rows import add_rows, sum_rows, table_gradients


@flax.struct.dataclass
class TrainState:
    """Everything that an update changes.

    Attributes:
        params: The parameters.
        opt_state: The optimizer's state.
        step: The number of updates made, int32.
        carry: The body's carry for the next update; None for a window.
        average: The running average of the parameters; None where `train.average` is 0.
        output_state: The output layer's state; None for most.
    """

    params: Params
    opt_state: optax.OptState
    step: jax.Array
    carry: Carry = None
    average: Params | None = None
    output_state: Any = None


@flax.struct.dataclass
class RunInputs:
    """The arrays that every update of a run reads.

    Attributes:
        hyperparameters: The run's `Hyperparameters`.
        tokens_T: The words to which positions refer, int32: those of `inputs.Words`; None where batches are given.
        proposal: The distribution that a sampled loss draws words from; None for other losses.
        neighbours: The words that a prior relates to each word; None without a prior.
    """

    hyperparameters: Any
    tokens_T: Any = None
    proposal: Any = None
    neighbours: Any = None


@dataclasses.dataclass(frozen=True)
class Program:
    """Everything that is static in an update; equal programs share their compiled code.

    Attributes:
        network: The network.
        optimizer: Its `update` takes the hyperparameters as an extra argument.
        learning_rate: The function (hyperparameters, step) -> rate.
        batch_size: Words per update.
        steps_per_epoch: Updates per epoch.
        scatters_updates: Whether an update changes only the rows that have a gradient. Needs a sparse output layer and
            an optimizer whose state of a row is one number (`rowwise_adam`) or nothing (plain SGD).
        is_rowwise: Whether the optimizer is `rowwise_adam`: the gradients of a row are summed first, and weight decay
            is decoupled from them.
        average_decay: The decay of the parameters' average per update; 0 for no average.
        sharding: The sharding of the state.
    """

    network: Network
    optimizer: optax.GradientTransformationExtraArgs
    learning_rate: LearningRate
    batch_size: int
    steps_per_epoch: int
    scatters_updates: bool
    is_rowwise: bool = False
    average_decay: float = 0.0
    sharding: MeshSharding = ONE_DEVICE

    @property
    def decouples_decay(self) -> bool:
        """Whether weight decay multiplies the weights after some updates, and is not a part of the gradients."""
        return self.scatters_updates or self.is_rowwise


def make_program(
    settings: Settings, network: Network, steps_per_epoch: int, sharding: MeshSharding = ONE_DEVICE
) -> Program:
    """Returns the program of a run. Runs whose settings differ only in `Hyperparameters` get equal programs."""
    optimizer, train = settings.optimizer, settings.train
    # Hyperparameters are arguments of the program and not a part of it.
    paper = dataclasses.replace(optimizer.paper, epsilon_0=1.0, r=0.0, decay=0.0)
    optimizer = dataclasses.replace(optimizer, learning_rate=1.0, decay=0.0, paper=paper)
    tables = tuple(dict.fromkeys((*network.output_tables, EMBEDDING)))
    optimizer_fn, learning_rate = _make_optimizer(optimizer, steps_per_epoch * train.epochs, train.batch_size, tables)
    return Program(
        network=network,
        optimizer=optimizer_fn,
        learning_rate=learning_rate,
        batch_size=train.batch_size,
        steps_per_epoch=steps_per_epoch,
        scatters_updates=network.output.uses_sparse_updates and (optimizer.is_plain_sgd or optimizer.is_rowwise),
        is_rowwise=optimizer.is_rowwise,
        average_decay=train.average,
        sharding=sharding,
    )


@functools.cache  # equal arguments return the same functions, so that programs are equal
def _make_optimizer(
    settings: OptimizerSettings, total_steps: int, batch_size: int, tables: tuple[str, ...]
) -> tuple[optax.GradientTransformationExtraArgs, LearningRate]:
    learning_rate = learning_rate_schedule(settings, total_steps, batch_size)
    return make_optimizer(settings, learning_rate, tables), learning_rate


@functools.partial(jax.jit, static_argnames='program')  # one compilation instead of one per operation
def init_state(program: Program, hyperparameters: Hyperparameters, bias_V: np.ndarray | None = None) -> TrainState:
    """Returns the state before the first update, on one device: a pure function of the seed.

    Args:
        program: The run's program.
        hyperparameters: The run's hyperparameters; only the seed is used.
        bias_V: Initial b, float32; zeros when None.
    """
    network = program.network
    key = jax.random.fold_in(jax.random.key(hyperparameters.seed), 0)
    params = network.init(key, bias_V)
    carry = network.body.start(network.body.num_streams(program.batch_size))
    average = params if program.average_decay else None
    output_state = network.output.init_state(network.vocabulary_size)
    opt_state = program.optimizer.init(params)
    return TrainState(params, opt_state, jnp.zeros((), jnp.int32), carry, average, output_state)


def compute_gradients(
    program: Program, state: TrainState, contexts_BxN: jax.Array, targets_B: jax.Array, inputs: RunInputs
) -> Gradients:
    """Returns the gradients of one batch. Arguments as of `train_step`."""
    network = program.network
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(inputs.hyperparameters.seed), 2), state.step)
    starts_epoch = state.step % program.steps_per_epoch == 0  # then no words have been read
    start = network.body.start(network.body.num_streams(program.batch_size))
    carry = jax.tree.map(lambda first, carried: jnp.where(starts_epoch, first, carried), start, state.carry)
    batch, rest = (state.params, network, contexts_BxN, targets_B), (carry, key, program.sharding)
    if network.output.uses_sparse_updates:
        return sparse_gradients(*batch, inputs.proposal, *rest, state.output_state)
    gradient = jax.value_and_grad(penalised_nll, has_aux=True)
    weight_decay = 0.0 if program.decouples_decay else inputs.hyperparameters.weight_decay
    (_, (nll, carry)), grads = gradient(*batch, weight_decay, *rest)
    return Gradients(nll, grads, None, carry)


def apply_gradients(program: Program, state: TrainState, gradients: Gradients, inputs: RunInputs) -> TrainState:
    """Returns the state after the update with these gradients."""
    hyperparameters, output_state = inputs.hyperparameters, state.output_state
    update = functools.partial(program.optimizer.update, hyperparameters=hyperparameters)
    if program.scatters_updates:
        assert gradients.rows is not None
        grads, rows = table_gradients(gradients.grads, gradients.rows, program.network.output_tables)
        if program.is_rowwise:
            for name, ids_R in rows.items():
                rows[name], grads[name] = sum_rows(ids_R, grads[name], len(state.params[name]))
        updates, opt_state = update(grads, state.opt_state, rows=rows)
        params = add_rows(state.params, program.sharding.constrain_replicated(updates), rows)
    else:
        grads = dense_grads(program, state.params, gradients)
        if gradients.rows is not None and not program.decouples_decay:  # sparse gradients leave R out
            decay = hyperparameters.weight_decay
            grads = jax.tree.map(lambda g, p: g + decay * p if p.ndim > 1 else g, grads, state.params)
        updates, opt_state = update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
    if output_state is not None:
        output, bias_grads = cast(SparseOutputLayer, program.network.output), gradients.grads[1][BIAS]
        bias_grads = program.sharding.constrain_replicated(bias_grads)
        output_state = output.update_state(output_state, inputs.proposal, gradients.rows, bias_grads)
    return program.sharding.constrain(
        TrainState(params, opt_state, state.step + 1, gradients.carry, state.average, output_state)
    )


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
        The state after the update, and the batch's mean NLL before it, nats per word. The prior is left to
        `apply_deferred_penalties`, and so is weight decay with `program.decouples_decay`.
    """
    gradients = compute_gradients(program, state, contexts_BxN, targets_B, inputs)
    return apply_gradients(program, state, gradients, inputs), gradients.nll


def apply_deferred_penalties(
    program: Program, params: Params, step: jax.Array, inputs: RunInputs, num_steps: int
) -> Params:
    """Applies at once what `train_step` leaves out of `num_steps` updates from `step` on: weight decay, and the prior.

    Weight decay multiplies all weights with the product of the updates' factors; biases do not decay. The prior
    multiplies the distance of each word's features from those of its neighbours, which it takes as they are now.
    """
    hyperparameters = inputs.hyperparameters
    rate_S = jax.vmap(lambda s: program.learning_rate(hyperparameters, s))(step + jnp.arange(num_steps))
    if program.decouples_decay:
        factor = jnp.prod(1 - rate_S * hyperparameters.weight_decay)
        params = jax.tree.map(lambda weight: weight * factor if weight.ndim > 1 else weight, params)
    if inputs.neighbours is not None:
        factor = jnp.prod(1 - rate_S * hyperparameters.prior_strength)
        params = params | {EMBEDDING: draw_to_neighbours(params[EMBEDDING], inputs.neighbours, factor)}
    return params


def train_steps(
    program: Program, state: TrainState, positions_SxB: jax.Array, inputs: RunInputs
) -> tuple[TrainState, jax.Array]:
    """Makes S updates, each on the words at its positions.

    Deviation: with `program.decouples_decay` weight decay is applied once after the S updates, by the product of their
    factors; the prior always is.

    Returns:
        The new state and the mean NLL of each batch, float32, S.
    """

    def step(state: TrainState, positions_B: jax.Array) -> tuple[TrainState, jax.Array]:
        batch = dataset.windows(inputs.tokens_T, positions_B, program.network.body.training_context)
        state, nll = train_step(program, state, *batch, inputs)
        # Sparse updates gather rows, so a row should be contiguous in memory; dense products want the words contiguous.
        return (state if program.scatters_updates else program.sharding.vocab_minor_layout(state)), nll

    new_state, nll_S = jax.lax.scan(step, state, positions_SxB)
    num_steps = len(positions_SxB)
    params = apply_deferred_penalties(program, new_state.params, state.step, inputs, num_steps)
    average = update_average(program, new_state.average, params, state.step, num_steps)
    return dataclasses.replace(new_state, params=params, average=average), nll_S


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
    program: Program, state: TrainState, positions_T: jax.Array, first: int, num_steps: int, inputs: RunInputs
) -> tuple[TrainState, jax.Array]:
    """Compiles and runs `train_steps` on consecutive elements of `positions_T`, from index `first` on.

    The state is donated: use only the one returned.
    """
    B = program.batch_size
    positions_SxB = jax.lax.dynamic_slice(positions_T, (first,), (num_steps * B,)).reshape(num_steps, B)
    return train_steps(program, state, positions_SxB, inputs)
