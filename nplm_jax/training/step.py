"""Performs single training updates and chunks of consecutive updates, as pure functions of a training state.

Dims: S streams, or updates in a chunk; T targets per stream, or words in the corpus; V vocabulary.
"""

import dataclasses
import functools
from typing import Any, cast

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from nplm_jax.data.batches import Batch, make_batch
from nplm_jax.distributed.constraints import constrain, constrain_replicated, vocab_minor_layout
from nplm_jax.distributed.sharding import ONE_DEVICE, MeshSharding, pad
from nplm_jax.models.body import State
from nplm_jax.models.network import Network
from nplm_jax.outputs.output_layer import BIAS, Params, SparseOutputLayer
from nplm_jax.training import affixes, optimizer_plugin, sparse_rows
from nplm_jax.training.deferred_decay import DeferredScaling, mix
from nplm_jax.training.gradients import Gradients, gradients
from nplm_jax.training.optimizers import Hyperparams, Optimizer
from nplm_jax.utils.errors import require


@flax.struct.dataclass
class TrainState:
    """The state of training between two updates.

    Attributes:
        params: The parameters of the network.
        opt_state: The state of the optimizer, including its traced hyperparameters; see `Optimizer`.
        step: The number of completed updates, int32.
        seed: The random seed of the run, int32.
        carry: The state of the network's streams before the next update; see `Network.start`.
        average: The running average of the parameters, or None if `train.average` is 0.
        output_state: The state of the output layer, or None if the layer is stateless.
        deferred: Within a chunk of sparse updates, the factors by which the arrays of the tables differ from the actual
            values; see `DeferredScaling`. Otherwise None.
    """

    params: Params
    opt_state: optax.OptState
    step: jax.Array
    seed: jax.Array
    carry: State = None
    average: Params | None = None
    output_state: Any = None
    deferred: DeferredScaling | None = None


@flax.struct.dataclass
class StepInputs:
    """The arrays that every update of a run reads.

    Attributes:
        tokens_T: The word ids to which the positions of the targets refer, int32; see `word_source.Words`. None if the
            caller passes batches instead of positions.
        extras: The constant arrays of the output layer, which every batch contains as `Batch.extras`.
        teachers: The parameters of the teachers, which every batch contains as `Batch.teachers`.
        affixes_VxK: The affixes of each word, which every batch contains as `Batch.affixes_VxK`.
    """

    tokens_T: Any = None
    extras: Any = None
    teachers: Any = ()
    affixes_VxK: Any = None

    def batch(self, network: Network, positions_SxT: jax.Array) -> Batch:
        """Returns the batch whose targets are at the given int32 positions in `tokens_T`. See `make_batch`."""
        batch = make_batch(self.tokens_T, positions_SxT, network.layout.lookback, network.line_end)
        return batch._replace(extras=self.extras, teachers=self.teachers, affixes_VxK=self.affixes_VxK)


@dataclasses.dataclass(frozen=True)
class Program:
    """The static part of an update. Runs with equal programs share compiled code.

    Attributes:
        network: The network, without its parameters.
        optimizer: The optimizer. The values of its traced hyperparameters are part of the state.
        batch_size: The number of words per update.
        steps_per_epoch: The number of updates per epoch.
        scatters_updates: Whether an update changes only those table rows that have a gradient; see `Rule.updates_rows`.
        num_microbatches: The number of microbatches per update; see `gradients.accumulate`.
        average_decay: The decay of the parameter average per update, or 0 for no average.
        average_start: The number of updates before averaging starts.
        num_affixes: The number of affix rows; see `affixes`.
        sharding: The sharding of the state.
    """

    network: Network
    optimizer: Optimizer
    batch_size: int
    steps_per_epoch: int
    scatters_updates: bool
    num_microbatches: int = 1
    average_decay: float = 0.0
    average_start: int = 0
    num_affixes: int = 0
    sharding: MeshSharding = ONE_DEVICE

    def unshard(self, tree: Any) -> Any:
        """Gathers parameters or a state, and removes the padding rows of the output tables."""
        return self.sharding.unshard(tree, self.network.num_rows)


@functools.partial(jax.jit, static_argnames='program')  # one compilation, not one per operation
def init_state(program: Program, seed: Any, hyperparams: Hyperparams, bias_V: np.ndarray | None = None) -> TrainState:
    """Returns the initial training state, placed according to `program.sharding`.

    The state depends only on the arguments. Each device computes only its share of the rows of sharded arrays.

    Args:
        program: The static part of the updates.
        seed: The random seed of the run.
        hyperparams: The traced hyperparameters of the optimizer; see `Rule.hyperparams`.
        bias_V: The initial value of b, float32. If None, b is initialized to zero.
    """
    network, seed = program.network, jnp.asarray(seed, jnp.int32)
    params = network.init(jax.random.fold_in(jax.random.key(seed), 0), bias_V)
    params = affixes.init(params, network, program.num_affixes)
    carry = network.start(network.layout.num_streams(program.batch_size))
    average = params if program.average_decay else None
    output = network.output
    output_state = output.init_state(network.vocabulary_size) if isinstance(output, SparseOutputLayer) else None
    opt_state = program.optimizer.init(params, hyperparams)
    averages_twice = program.average_decay > 0 and optimizer_plugin.averages(opt_state)
    require(not averages_twice, 'train.average', program.average_decay, 'must be 0 with a schedule-free optimizer')
    state = TrainState(params, opt_state, jnp.zeros((), jnp.int32), seed, carry, average, output_state)
    state = jax.tree.map(lambda x: jnp.asarray(x, jnp.result_type(x)), state)  # weak types would compile updates twice
    return constrain(pad(state, program.sharding), program.sharding)


def average_decay_at(program: Program, step: jax.Array) -> jax.Array:
    """Returns the decay of the parameter average in an update.

    The decay is 1 before averaging starts. Afterwards, the average is the plain mean of all parameters so far, until
    the decay that this requires exceeds `average_decay`. From then on, the decay is `average_decay`.
    """
    num_averaged = step - program.average_start
    return jnp.where(num_averaged < 0, 1.0, jnp.minimum(program.average_decay, (num_averaged + 1) / (num_averaged + 2)))


def train_step(program: Program, state: TrainState, batch: Batch) -> tuple[TrainState, jax.Array]:
    """Performs one update.

    Float32 matrix products are computed at full precision on every device, unless JAX_DEFAULT_MATMUL_PRECISION selects
    another precision.

    Args:
        program: The static part of the update.
        state: The state before the update.
        batch: The training examples.

    Returns:
        The state after the update, and the mean NLL of the batch before the update, nats per word.
    """
    # Accelerators default to lower precision: TensorFloat-32 on NVIDIA GPUs, bfloat16 on TPUs.
    chosen = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
    with jax.default_matmul_precision(chosen or 'float32'):
        return _train_step(program, state, batch)


def _train_step(program: Program, state: TrainState, batch: Batch) -> tuple[TrainState, jax.Array]:
    network = program.network
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(state.seed), 2), state.step)
    starts_epoch = state.step % program.steps_per_epoch == 0  # the streams are reset at the start of each epoch
    start = network.start(len(batch.ids_SxL))
    carry = jax.tree.map(lambda first, carried: jnp.where(starts_epoch, first, carried), start, state.carry)
    args = state.params, network, batch, carry, key, program.sharding, program.num_microbatches
    found = gradients(*args, state.output_state, state.deferred)
    return apply_gradients(program, state, batch, found), found.nll


def apply_gradients(program: Program, state: TrainState, batch: Batch, gradients: Gradients) -> TrainState:
    """Returns the state after an update with the given gradients.

    If `state.deferred` is not None, the update changes only the table rows that have a gradient.
    """
    view, network = gradients.view, program.network
    optimizer, sharding, step = program.optimizer, program.sharding, state.step
    average_decay, deferred = average_decay_at(program, step), state.deferred
    if deferred is None:
        grads = view.shared
        if view.rows is not None:
            grads = sparse_rows.scatter_to_dense(view, batch, state.params, network, sharding)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params, step=step)
        params = optax.apply_updates(state.params, updates)
        average = None if state.average is None else mix(average_decay, state.average, params)
    else:
        grads, rows = sparse_rows.row_gradients(view, batch, state.params, network, sharding, optimizer.rule.sums_rows)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params, rows=rows, step=step)
        scaling = optimizer.table_factor(state.opt_state, step), average_decay
        deferred, params, average = deferred.update(state.params, state.average, updates, rows, *scaling)
    output_state = state.output_state
    if output_state is not None:
        assert view.rows is not None
        bias_grads = constrain_replicated(view.examples[BIAS], sharding)
        output = cast(SparseOutputLayer, network.output)
        output_state = output.update_state(output_state, batch, view.rows, bias_grads)
    state = TrainState(params, opt_state, step + 1, state.seed, gradients.carry, average, output_state)
    return dataclasses.replace(constrain(state, sharding), deferred=deferred)


def evaluation_params(program: Program, state: TrainState) -> Params:
    """Returns the parameters to validate and to report as the result.

    These are the running average if averaging has started. Otherwise, the optimizer determines them; see
    `optimizer_plugin.evaluation_params`.
    """
    if state.average is not None and state.step > program.average_start:
        return state.average
    return optimizer_plugin.evaluation_params(state.opt_state, state.params, program.network.tables.units)


def train_steps(
    program: Program, state: TrainState, positions_T: jax.Array, first: Any, num_steps: int, inputs: StepInputs
) -> tuple[TrainState, jax.Array]:
    """Performs `num_steps` updates on consecutive elements of `positions_T`, starting at index `first`.

    The result does not depend on how updates are grouped into calls. However, `Program.average_start` must not lie
    between the first and the last update of a call, because averaging can start only at the beginning of a call.

    Returns:
        The state after the last update, and the mean NLL of each batch before its update, float32, S, nats per word.
    """
    gathers_rows = isinstance(program.network.output, SparseOutputLayer)

    def step(state: TrainState, positions_SxT: jax.Array) -> tuple[TrainState, jax.Array]:
        state, nll = train_step(program, state, inputs.batch(program.network, positions_SxT))
        # Sparse layers gather rows, so the elements of a row should be contiguous in memory. Other layers compute
        # matrix products over |V|, which are faster if the values of different words are contiguous.
        return (state if gathers_rows else vocab_minor_layout(state, program.sharding)), nll

    if program.average_start:
        starts_average = state.step == program.average_start
        average = jax.tree.map(lambda a, b: jnp.where(starts_average, b, a), state.average, state.params)
        state = dataclasses.replace(state, average=average)
    if program.scatters_updates:
        state = dataclasses.replace(state, deferred=DeferredScaling.start(program.network))
    positions_T = jax.lax.dynamic_slice(positions_T, (first,), (num_steps * program.batch_size,))
    state, nll_S = jax.lax.scan(step, state, positions_T.reshape(num_steps, -1, program.network.layout.bptt_length))
    if state.deferred is not None:
        params, average = state.deferred.apply(state.params, state.average)
        state = constrain(dataclasses.replace(state, params=params, average=average, deferred=None), program.sharding)
    return state, nll_S


# The compiled `train_steps`. It donates the buffers of `state`, so the caller can use only the returned state.
execute_steps = jax.jit(train_steps, static_argnames=('program', 'num_steps'), donate_argnames='state')
