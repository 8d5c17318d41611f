"""What training minimises, and its gradients: mean NLL + R(theta) (the paper's section 2.1 with the sign turned).

Dims: B batch, N context words.
"""

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from nplm_jax.distributed.sharding import NO_AXES, ONE_DEVICE, Axes, MeshSharding
from nplm_jax.models.body import Carry
from nplm_jax.models.network import Network
from nplm_jax.outputs.output_layer import Params, SparseOutputLayer
from nplm_jax.training.sparse_rows import CONTEXTS, Rows, gather_rows


class Gradients(NamedTuple):
    """The gradients of one batch.

    Attributes:
        nll: The batch's mean NLL (an estimate for a sampled loss), nats a word.
        trees: One tree in the structure of the parameters; for `rows`, the two that `sparse_rows.gather_rows` gives.
        rows: The rows that sparse gradients are of, else None.
        carry: What the body's streams carry on.
    """

    nll: jax.Array
    trees: Any
    rows: Rows | None
    carry: Carry


def regulariser(params: Params, weight_decay: jax.Array | float) -> jax.Array:
    """Computes R = decay/2 * sum of squares of the weights (C, H, U, W), not of the biases.

    Its gradient with respect to a weight is decay * weight.
    """
    squares = jnp.asarray(sum(jnp.sum(jnp.square(w)) for w in jax.tree.leaves(params) if w.ndim > 1))
    return 0.5 * weight_decay * squares


def penalised_nll(
    params: Params,
    network: Network,
    contexts_BxN: jax.Array,
    targets_B: jax.Array,
    weight_decay: jax.Array | float,
    carry: Carry = None,
    key: jax.Array | None = None,
    sharding: MeshSharding = ONE_DEVICE,
) -> tuple[jax.Array, tuple[jax.Array, Carry]]:
    """Computes mean NLL + R over all devices.

    Args:
        params: The parameters.
        network: The network that they belong to.
        contexts_BxN: Word ids in reading order, the most recent word last, int32.
        targets_B: The words that follow, int32.
        weight_decay: The decay of R.
        carry: What the body's streams carried on to this batch.
        key: A random key for dropout; None switches it off.
        sharding: Where the parameters and the batch lie.

    Returns:
        The penalised loss, and with it the mean NLL, whose exponential is the perplexity, and what the streams carry
        on. Float32 scalars, nats a word.
    """

    def device_loss(
        params: Params, contexts_BxN: Any, targets_B: Any, carry: Carry, key: Any, axes: Axes = NO_AXES
    ) -> tuple[jax.Array, Carry]:
        return network.loss(params, contexts_BxN, targets_B, carry, key, axes)

    nll, carry = sharding.map_loss(device_loss)(params, contexts_BxN, targets_B, carry, key)
    return nll + regulariser(params, weight_decay), (nll, carry)


def dense_gradients(
    params: Params,
    network: Network,
    contexts_BxN: jax.Array,
    targets_B: jax.Array,
    weight_decay: jax.Array | float,
    carry: Carry,
    key: jax.Array,
    sharding: MeshSharding,
) -> Gradients:
    """Returns the gradients of `penalised_nll` with respect to every parameter."""
    gradient = jax.value_and_grad(penalised_nll, has_aux=True)
    (_, (nll, carry)), grads = gradient(params, network, contexts_BxN, targets_B, weight_decay, carry, key, sharding)
    return Gradients(nll, grads, None, carry)


def sparse_gradients(
    params: Params,
    network: Network,
    contexts_BxN: jax.Array,
    targets_B: jax.Array,
    proposal: Any,
    carry: Carry,
    key: jax.Array,
    sharding: MeshSharding,
) -> Gradients:
    """Returns the gradients of the rows that a sparse output layer's loss needs, without R.

    Over a mesh these rows alone cross the devices, and all devices divide the batch.
    """
    output = cast(SparseOutputLayer, network.output)
    network.check_contexts(contexts_BxN)
    key, key_rows = jax.random.split(key)
    rows = Rows(contexts_BxN, *output.rows(targets_B, proposal, key_rows))
    # Replicated, since XLA would otherwise divide the row numbers too, and sum whole arrays of V rows at the end.
    rows, targets_B = sharding.constrain_replicated((rows, targets_B))
    gathered = sharding.constrain_replicated(gather_rows(params, rows, network.output_tables))

    def device_loss(
        shared: Params, per_example: Params, targets_B: Any, carry: Carry, extra: Any, axes: Axes = NO_AXES
    ) -> tuple[Any, Carry]:
        key, shared_S, proposal = extra
        features, carry = network.body.features(shared, per_example[CONTEXTS], carry, key, axes.data)
        loss, nll = output.sparse_loss(shared, per_example, features, targets_B, shared_S, proposal)
        return (loss + network.body.penalty(features), nll), carry

    def loss(shared: Params, per_example: Params) -> tuple[jax.Array, tuple[jax.Array, Carry]]:
        extra = key, rows.shared_S, proposal
        (loss, nll), carry_on = sharding.map_sparse_loss(device_loss)(shared, per_example, targets_B, carry, extra)
        return loss, (nll, carry_on)

    (_, (nll, carry_on)), grads = jax.value_and_grad(loss, (0, 1), has_aux=True)(*gathered)
    return Gradients(nll, grads, rows, carry_on)
