"""The gradients of the mean NLL (the paper's section 2.1, negated); R(theta) is a link of the optimizer's chain.

Dims: S streams, L tokens of each that are read, B batch, N context words.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from nplm_jax.distributed.sharding import NO_AXES, ONE_DEVICE, MeshAxes, MeshSharding
from nplm_jax.models.body import State, by_example
from nplm_jax.models.network import Network
from nplm_jax.outputs.output_layer import Gathered, Params, SparseOutputLayer
from nplm_jax.training.sparse_rows import CONTEXTS, Rows, Scales, gather_rows
from nplm_jax.utils.nn import Key


class Gradients(NamedTuple):
    """The gradients of one batch.

    Attributes:
        nll: The batch's mean NLL (an estimate for a sampled loss), nats per word.
        grads: Dense: one tree like the parameters. Sparse: the pair (shared, per_example), as `gather_rows` returns it.
        rows: The gathered rows of sparse gradients; None for dense ones.
        carry: The body's state after the batch.
    """

    nll: jax.Array
    grads: Any
    rows: Rows | None
    carry: State


def dense_gradients(
    params: Params,
    network: Network,
    ids_SxL: jax.Array,
    targets_B: jax.Array,
    carry: State = None,
    key: Key = None,
    sharding: MeshSharding = ONE_DEVICE,
    num_parts: int = 1,
) -> Gradients:
    """Returns the mean NLL over all devices and its gradients, without R.

    Args:
        params: The parameters.
        network: Their network.
        ids_SxL: Token ids of each stream in reading order, int32.
        targets_B: The tokens that follow, stream by stream, int32.
        carry: The body's state before the batch.
        key: A random key for dropout; None switches it off.
        sharding: The sharding of the parameters and the batch.
        num_parts: Number of parts of the batch; see `accumulate`.
    """

    def device_loss(
        params: Params, ids_SxL: jax.Array, targets_B: jax.Array, carry: State, part: Any, axes: MeshAxes = NO_AXES
    ) -> tuple[jax.Array, State]:
        key, number = part
        return network.loss(params, ids_SxL, targets_B, carry, key, axes.of_part(number, num_parts))

    def part(batch: Any, number: Any) -> tuple[Any, State]:
        gradient = jax.value_and_grad(sharding.map_loss(device_loss), has_aux=True)
        (nll, carry), grads = gradient(params, *batch, (key, number))
        return (nll, grads), carry

    (nll, grads), carry = accumulate(part, num_parts, (ids_SxL, targets_B, carry))
    return Gradients(nll, grads, None, carry)


def sparse_gradients(
    params: Params,
    network: Network,
    ids_SxL: jax.Array,
    targets_B: jax.Array,
    proposal: Any,
    carry: State,
    key: jax.Array,
    sharding: MeshSharding,
    num_parts: int = 1,
    output_state: Any = None,
    scales: Scales | None = None,
) -> Gradients:
    """Returns the gradients of a sparse output layer's loss with respect to the rows that it reads, without R.

    On a mesh only these rows are sent between devices, and the batch is divided over all devices. All parts of a batch
    share its samples.
    """
    output = cast(SparseOutputLayer, network.output)
    network.check_contexts(ids_SxL, targets_B)
    key, key_rows = jax.random.split(key)
    contexts_BxN = ids_SxL.reshape(len(targets_B), -1)
    rows = Rows(ids_SxL, *output.rows(contexts_BxN, targets_B, proposal, key_rows, output_state))
    # Replicated: otherwise XLA divides the row numbers too, and sums whole arrays of V rows at the end.
    rows, targets_B = sharding.constrain_replicated((rows, targets_B))
    shared, per_example = sharding.constrain_replicated(gather_rows(params, rows, network.output_tables, scales))

    def device_loss(
        shared: Params, per_example: Params, batch: Any, carry: State, replicated: Any, axes: MeshAxes = NO_AXES
    ) -> tuple[Any, State]:
        targets_B, draws = batch
        number, key, shared_S, proposal = replicated
        axis = axes.of_part(number, num_parts).data
        features, carry = network.body.features(shared, per_example[CONTEXTS], carry, key, axis)
        features = by_example(features)
        loss, nll = output.sparse_loss(Gathered(shared, per_example, shared_S, draws), features, targets_B, proposal)
        return (loss + network.body.penalty(features), nll), carry

    def part(batch: Any, number: Any) -> tuple[Any, Any]:
        def loss(shared: Params, per_example: Params) -> tuple[jax.Array, tuple[jax.Array, State]]:
            mapped, replicated = sharding.map_sparse_loss(device_loss), (number, key, rows.shared_S, proposal)
            (loss, nll), carry = mapped(shared, per_example, *batch[1:], replicated)
            return loss, (nll, carry)

        gradient = jax.value_and_grad(loss, (0, 1), has_aux=True)
        (_, (nll, carry)), (shared_grads, example_grads) = gradient(shared, batch[0])
        return (nll, shared_grads), (carry, jax.tree.map(lambda g: g / num_parts, example_grads))

    batch = per_example, (targets_B, rows.draws), carry
    (nll, shared_grads), (carry, example_grads) = accumulate(part, num_parts, batch)
    return Gradients(nll, (shared_grads, example_grads), rows, carry)


def accumulate(part: Callable[[Any, Any], tuple[Any, Any]], num_parts: int, batch: Any) -> tuple[Any, Any]:
    """Computes a batch in equal parts, one after another, which needs the memory of one part only.

    Args:
        part: A function of a part of the batch and its number, None where there is one part. It returns means over the
            part, and arrays with one row for each of its examples or streams.
        num_parts: Number of parts.
        batch: Arrays with one row for each example or stream.

    Returns:
        The means over the batch, and the arrays of all its examples or streams.
    """
    if num_parts == 1:
        return part(batch, None)
    parts = jax.tree.map(lambda x: x.reshape(num_parts, -1, *x.shape[1:]), batch)

    def add(total: Any, numbered: Any) -> tuple[Any, Any]:
        number, batch = numbered
        means, rows = part(batch, number)
        return jax.tree.map(lambda t, mean: t + mean / num_parts, total, means), rows

    means, _ = jax.eval_shape(part, jax.tree.map(lambda x: x[0], parts), 0)
    zeros = jax.tree.map(lambda mean: jnp.zeros(mean.shape, mean.dtype), means)
    means, rows = jax.lax.scan(add, zeros, (jnp.arange(num_parts), parts))
    return means, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)
