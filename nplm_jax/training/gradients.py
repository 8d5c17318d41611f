"""Gradients of the loss of a batch, in parts (section 2.1); `outputs.blockwise` has those of the softmax.

Dims: S streams, L tokens of each that are read, M features per word, B examples.
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
from nplm_jax.outputs.output_layer import EMBEDDING, Params, Rows, View, view_rows
from nplm_jax.training.deferred_decay import Scales


class Gradients(NamedTuple):
    """The gradients of one batch.

    Attributes:
        nll: The batch's mean NLL (an estimate for a sampled loss), nats per word.
        view: The gradients in the structure of the `View` that the loss multiplied: without `rows` those of all
            parameters, in `view.shared`.
        carry: The body's state after the batch.
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
    scales: Scales | None = None,
) -> Gradients:
    """Returns the gradients of the loss over the batch of all devices, without R.

    A sparse output layer has gradients of the rows that its loss reads: on a mesh only these are sent between devices,
    and the batch is divided over all devices. All microbatches of a batch share its rows.

    Args:
        params: The parameters.
        network: Their network.
        batch: The examples.
        carry: The state of the streams before the batch: `Network.start`.
        key: A random key for the update; None for no dropout, where the output layer draws nothing.
        sharding: The sharding of the parameters and the batch.
        num_microbatches: Number of microbatches; see `accumulate`.
        output_state: The output layer's state.
        scales: Factors of the tables; None where the arrays hold the values.
    """
    key, key_rows = (None, None) if key is None else jax.random.split(key)
    rows = network.output.rows(batch, key_rows, output_state)
    view = View(params)
    if rows is not None:
        # Replicated: otherwise XLA divides the row numbers too, and sums whole arrays of V rows at the end.
        rows, batch = constrain_replicated((rows, batch), sharding)
        view = sparse_view(params, network, batch, rows, scales, sharding)

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
            (loss, nll), carry = mapped(shared, (*of_streams, streams[1]), replicated)
            return loss, (nll, carry)

        gradient = jax.value_and_grad(loss, (0, 1), has_aux=True)
        (_, (nll, carry)), (shared, of_streams) = gradient(view.shared, streams[0])
        return (nll, shared), (carry, jax.tree.map(lambda g: g / num_microbatches, of_streams))

    # What devices and microbatches divide, and what each has in full.
    of_examples: Any = rows and rows._replace(shared_S=cast(Any, None))
    streams = (view.examples, view.contexts_SxLxM), (batch._replace(extras=None, teachers=()), carry, of_examples)
    replicated = key, batch.extras, batch.teachers, rows and rows.shared_S
    (nll, shared), (carry, (examples, contexts)) = accumulate(microbatch_gradients, num_microbatches)(streams)
    return Gradients(nll, View(shared, examples, rows, contexts), carry)


def sparse_view(
    params: Params, network: Network, batch: Batch, rows: Rows, scales: Scales | None, sharding: MeshSharding
) -> View:
    """Returns the rows of the tables that a sparse loss reads, and the other parameters, on every device.

    The rows of C are those of the tokens that the body reads.
    """
    ids_SxL = batch.recent(network.body.layout.lookback).ids_SxL
    tables = network.tables.words
    view = view_rows(params, tables, rows)

    def scale(name: str, rows: jax.Array) -> jax.Array:
        return rows if scales is None else scales.weights[name] * rows

    others = {name: value for name, value in params.items() if name != EMBEDDING and name not in tables}
    shared = others | {name: scale(name, view.shared[name]) for name in tables}
    examples = {name: scale(name, view.examples[name]) for name in tables}
    contexts_SxLxM = scale(EMBEDDING, params[EMBEDDING][ids_SxL])
    return View(constrain_replicated(shared, sharding), constrain_examples(examples, sharding), rows, contexts_SxLxM)


def accumulate(gradients: Callable[..., tuple[Any, Any]], num_microbatches: int) -> Callable[[Any], tuple[Any, Any]]:
    """Returns a function that computes a batch in equal microbatches, one after another, with the memory of one.

    Args:
        gradients: A function of a microbatch. It returns means over the microbatch, and arrays with one row for each of
            its examples or streams.
        num_microbatches: Number of microbatches.

    Returns:
        A function of arrays with one row for each example or stream. It returns the means over the batch, and the
        arrays of all its examples or streams.
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
