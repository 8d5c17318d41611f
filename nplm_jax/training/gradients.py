"""Computes the gradients of the loss over a batch (section 2.1).

`outputs.blockwise` defines the gradients of the full softmax.

Dims: S streams, L input tokens per stream, M features per word, B examples.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from nplm_jax.data.batches import Batch
from nplm_jax.distributed.constraints import constrain_examples, constrain_replicated
from nplm_jax.distributed.mapping import NO_AXES, MeshAxes, map_loss
from nplm_jax.distributed.sharding import ONE_DEVICE, MeshSharding
from nplm_jax.models.body import State
from nplm_jax.models.network import Network
from nplm_jax.nn import Keys
from nplm_jax.outputs.output_layer import EMBEDDING, Params, Rows, View
from nplm_jax.training import affixes
from nplm_jax.training.deferred_decay import DeferredScaling


class Gradients(NamedTuple):
    """The gradients of one batch.

    Attributes:
        nll: The mean NLL of the batch, nats per word. For sampled losses, it is an estimate.
        view: The gradients, structured like the `View` that the loss reads. If `view.rows` is None, `view.shared`
            contains the gradients of all parameters.
        carry: The state of the network's streams after the batch; see `Network.start`.
    """

    nll: jax.Array
    view: View
    carry: State


def gradients(
    params: Params,
    network: Network,
    batch: Batch,
    carry: State = None,
    key: jax.Array | None = None,
    sharding: MeshSharding = ONE_DEVICE,
    num_microbatches: int = 1,
    output_state: Any = None,
    deferred: DeferredScaling | None = None,
) -> Gradients:
    """Computes the gradients of the loss over the batch of all devices, without the weight-decay term R(theta).

    For sparse output layers, only the table rows that the loss reads have gradients. On a mesh, the batch is divided
    over the devices, and of the tables, the devices exchange only the gradients of these rows. All microbatches of a
    batch use the same sampled rows.

    Args:
        params: The parameters of the network.
        network: The network, without its parameters.
        batch: The examples of all devices.
        carry: The state of the streams before the batch; see `Network.start`.
        key: The random key of the update. If None, dropout is disabled, and the output layer must not draw samples.
        sharding: The sharding of the parameters and the batch.
        num_microbatches: The number of microbatches; see `accumulate`.
        output_state: The state of the output layer, or None if the layer is stateless.
        deferred: The factors by which the arrays of the tables differ from the actual values; see `DeferredScaling`.
            None if the arrays contain the actual values.
    """
    key, key_rows = (None, None) if key is None else jax.random.split(key)
    rows = network.output.rows(batch, key_rows, output_state)
    view = View(params)
    if rows is not None:
        # Without this constraint, XLA would divide the row indices over the devices, and would then have to sum whole
        # arrays of V rows over the devices.
        rows, batch = constrain_replicated((rows, batch), sharding)
        view = sparse_view(params, network, batch, rows, deferred, sharding)

    def device_loss(
        shared: Params, streams: Any, replicated: Any, axes: MeshAxes = NO_AXES
    ) -> tuple[tuple[jax.Array, jax.Array], State]:
        examples, contexts, (batch, carry, rows) = streams
        key, extras, teachers, shared_S = replicated
        keys = None if key is None else Keys.of_streams(key, batch.streams_S)
        view = View(shared, examples, rows and rows._replace(shared_S=shared_S), contexts)
        batch = batch._replace(extras=extras, teachers=teachers)
        loss, (nll, carry) = network.loss(view, batch, carry, keys, axes)
        return (loss, nll), carry

    def microbatch_gradients(streams: Any) -> tuple[Any, Any]:
        def loss(shared: Params, of_streams: Any) -> tuple[jax.Array, Any]:
            mapped = map_loss(device_loss, sharding)
            (loss, nll), carry = mapped(affixes.fold(shared, batch.affixes_VxK), (*of_streams, streams[1]), replicated)
            return loss, (nll, carry)

        gradient = jax.value_and_grad(loss, (0, 1), has_aux=True)
        (_, (nll, carry)), (shared, of_streams) = gradient(view.shared, streams[0])
        return (nll, shared), (carry, jax.tree.map(lambda g: g / num_microbatches, of_streams))

    # `streams` is sharded over devices and split into microbatches; `replicated` is not.
    of_examples: Any = rows and rows._replace(shared_S=cast(Any, None))
    own = batch._replace(extras=None, teachers=(), affixes_VxK=None)
    streams = (view.examples, view.contexts_SxLxM), (own, carry, of_examples)
    replicated = key, batch.extras, batch.teachers, rows and rows.shared_S
    (nll, shared), (carry, (examples, contexts)) = accumulate(microbatch_gradients, num_microbatches)(streams)
    return Gradients(nll, View(shared, examples, rows, contexts), carry)


def sparse_view(
    params: Params, network: Network, batch: Batch, rows: Rows, deferred: DeferredScaling | None, sharding: MeshSharding
) -> View:
    """Gathers the table rows that a sparse loss reads on every device, including the rows of C of the input tokens.

    The resulting view also contains all other parameters.
    """
    ids_SxL = batch.recent(network.body.layout.lookback).ids_SxL
    tables = network.tables.words

    def gather(name: str, ids: jax.Array) -> jax.Array:
        rows = params[name][ids] if deferred is None else deferred.scales[name] * params[name][ids]
        return affixes.add_shared(rows, params, name, ids, batch.affixes_VxK)

    gathered = EMBEDDING, *tables
    others = {name: params[name] for name in params if name not in (*gathered, *map(affixes.name_of, gathered))}
    shared = others | {name: gather(name, rows.shared_S) for name in tables}
    examples = {name: gather(name, rows.examples_BxL) for name in tables}
    contexts_SxLxM = gather(EMBEDDING, ids_SxL)
    return View(constrain_replicated(shared, sharding), constrain_examples(examples, sharding), rows, contexts_SxLxM)


def accumulate(gradients: Callable[..., tuple[Any, Any]], num_microbatches: int) -> Callable[[Any], tuple[Any, Any]]:
    """Returns a function that processes a batch as a sequence of equal microbatches, which saves memory.

    Args:
        gradients: A function that takes a microbatch, and returns a pair: means over the microbatch, and arrays with
            one row per example or stream.
        num_microbatches: The number of microbatches.

    Returns:
        A function that takes the whole batch, as arrays with one row per example or stream, and returns the same pair
        for the whole batch.
    """
    return gradients if num_microbatches == 1 else functools.partial(_accumulate, gradients, num_microbatches)


def _accumulate(gradients: Callable[..., tuple[Any, Any]], num_microbatches: int, batch: Any) -> tuple[Any, Any]:
    parts = jax.tree.map(lambda x: x.reshape(num_microbatches, -1, *x.shape[1:]), batch)

    def add(total: Any, part: Any) -> tuple[Any, Any]:
        means, rows = gradients(part)
        return jax.tree.map(lambda t, mean: t + mean / num_microbatches, total, means), rows

    means, _ = jax.eval_shape(gradients, jax.tree.map(lambda x: x[0], parts))
    zeros = jax.tree.map(lambda mean: jnp.zeros(mean.shape, mean.dtype), means)
    means, rows = jax.lax.scan(add, zeros, parts)
    return means, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)
