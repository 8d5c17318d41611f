"""Gradients of the mean NLL of a batch, in parts (section 2.1); `outputs.blockwise` has those of the softmax."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from nplm_jax.data.batches import Batch
from nplm_jax.distributed.mapping import NO_AXES, MeshAxes, map_loss
from nplm_jax.distributed.sharding import ONE_DEVICE, MeshSharding
from nplm_jax.models.body import State
from nplm_jax.models.network import Network
from nplm_jax.nn import Key
from nplm_jax.outputs.output_layer import Params


class Gradients(NamedTuple):
    """The gradients of one batch.

    Attributes:
        nll: The batch's mean NLL (an estimate for a sampled loss), nats per word.
        grads: Dense: one tree like the parameters. Sparse: see `sparse_rows.sparse_gradients`.
        carry: The body's state after the batch.
        rows: The `sparse_rows.Rows` of sparse gradients; None for dense ones.
    """

    nll: jax.Array
    grads: Any
    carry: State
    rows: Any = None


def dense_gradients(
    params: Params,
    network: Network,
    batch: Batch,
    carry: State = None,
    key: Key = None,
    sharding: MeshSharding = ONE_DEVICE,
    num_microbatches: int = 1,
    teacher_params: Sequence[Params] = (),
) -> Gradients:
    """Returns the mean NLL, and the gradients of the NLL plus the body's penalty, over the batch of all devices.

    Args:
        params: The parameters.
        network: Their network.
        batch: The examples.
        carry: The body's state before the batch.
        key: A random key for dropout; None as for scoring, see `Body.features`.
        sharding: The sharding of the parameters and the batch.
        num_microbatches: Number of microbatches; see `accumulate`.
        teacher_params: The parameters of the network's teachers, if it has any.
    """

    def device_loss(
        params: Params, batch: Batch, carry: State, replicated: Any, axes: MeshAxes = NO_AXES
    ) -> tuple[jax.Array, State]:
        key, number, extras, teacher_params = replicated
        axes = axes.of_microbatch(number, num_microbatches)
        return network.loss(params, batch._replace(extras=extras), carry, key, axes, teacher_params)

    def microbatch_gradients(streams: tuple[Batch, State], number: Any = None) -> tuple[Any, State]:
        gradient = jax.value_and_grad(map_loss(device_loss, sharding), has_aux=True)
        (nll, carry), grads = gradient(params, *streams, (key, number, batch.extras, teacher_params))
        return (nll, grads), carry

    (nll, grads), carry = accumulate(microbatch_gradients, num_microbatches)((batch._replace(extras=None), carry))
    return Gradients(nll, grads, carry)


def accumulate(gradients: Callable[..., tuple[Any, Any]], num_microbatches: int) -> Callable[[Any], tuple[Any, Any]]:
    """Returns a function that computes a batch in equal microbatches, one after another, with the memory of one.

    Args:
        gradients: A function of a microbatch and its number. It returns means over the microbatch, and arrays with one
            row for each of its examples or streams.
        num_microbatches: Number of microbatches; a single one gets no number.

    Returns:
        A function of arrays with one row for each example or stream. It returns the means over the batch, and the
        arrays of all its examples or streams.
    """
    return gradients if num_microbatches == 1 else functools.partial(_accumulate, gradients, num_microbatches)


def _accumulate(gradients: Callable[..., tuple[Any, Any]], num_microbatches: int, batch: Any) -> tuple[Any, Any]:
    parts = jax.tree.map(lambda x: x.reshape(num_microbatches, -1, *x.shape[1:]), batch)

    def add(total: Any, numbered: Any) -> tuple[Any, Any]:
        number, batch = numbered
        means, rows = gradients(batch, number)
        return jax.tree.map(lambda t, mean: t + mean / num_microbatches, total, means), rows

    means, _ = jax.eval_shape(gradients, jax.tree.map(lambda x: x[0], parts), 0)
    zeros = jax.tree.map(lambda mean: jnp.zeros(mean.shape, mean.dtype), means)
    means, rows = jax.lax.scan(add, zeros, (jnp.arange(num_microbatches), parts))
    return means, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)
