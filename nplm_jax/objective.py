"""What training minimises: mean negative log-likelihood + R(theta) (the paper's section 2.1, sign turned)."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from nplm_jax import class_softmax, nplm, parallel, recurrent, sampling, softmax
from nplm_jax.settings import OutputSettings

Params = nplm.Params | recurrent.Params
EXACT = OutputSettings()


def regulariser(params: Params, decay: float) -> jax.Array:
    """R = decay/2 * sum of squares of the weights (C, H, U, W), never of the biases; its gradient is decay * theta."""
    return 0.5 * decay * sum(jnp.sum(jnp.square(w)) for w in jax.tree.leaves(params) if w.ndim > 1)


def nll(
    params: Params,
    contexts_BxN: jax.Array,
    targets_B: jax.Array,
    carry: recurrent.State,
    key: jax.Array | None,
    dropout: float,
    output: OutputSettings,
    axes: parallel.Axes = parallel.NO_AXES,
) -> tuple[jax.Array, recurrent.State]:
    """Mean NLL of this device's examples, nats a word, and what a recurrent network carries on, else None.

    axes: what is shared out over other devices.
    """
    if isinstance(params, recurrent.Params):
        return recurrent.nll(params, contexts_BxN, targets_B, carry, key, dropout, output, axes.data, axes.model)
    parts = nplm.output_parts(params, contexts_BxN, dropout, key, axes.data)
    return softmax.mean_nll(parts, params.b_V, targets_B, output.precision, output.block_size, axes.model), None


def penalised_nll(
    params: Params,
    contexts_BxN: jax.Array,
    targets_B: jax.Array,
    decay: float,
    dropout: float = 0.0,
    key: jax.Array | None = None,
    output: OutputSettings = EXACT,
    layout: parallel.Layout = parallel.ONE_DEVICE,
    carry: recurrent.State = None,
) -> tuple[jax.Array, tuple[jax.Array, recurrent.State]]:
    """Returns: mean NLL + R, and with it the mean NLL that perplexity is made of, and what is carried on.

    All in nats a word. carry: the state of a recurrent network's streams.
    """
    of_one_device = functools.partial(nll, dropout=dropout, output=output)
    mean_nll, carry = layout.map(of_one_device)(params, contexts_BxN, targets_B, carry, key)
    return mean_nll + regulariser(params, decay), (mean_nll, carry)


def output_rows(
    params: nplm.Params, targets_B: jax.Array, output: OutputSettings, noise: sampling.Noise | None, key: jax.Array
) -> jax.Array:
    """The rows of the output layer that a cheap loss needs. int32."""
    if params.classes is not None:
        return class_softmax.rows(params.classes, targets_B, len(params.b_V))
    return jnp.concatenate([targets_B, sampling.draw(key, noise, output.samples)])


def cheap_loss(
    local: nplm.Params,
    places_BxN: jax.Array,
    targets_B: jax.Array,
    rows_R: jax.Array,
    vocabulary_size: int,
    dropout: float,
    key: jax.Array,
    kind: str,
    noise: sampling.Noise | None,
) -> tuple[jax.Array, jax.Array]:
    """The loss of output.kind sampled, nce or classes, as a function of what `touched.gather` gathered, without R.

    Returns: (loss, mean NLL), nats a word; the second is exact for classes, an estimate for the others.
    """
    parts = nplm.output_parts(local, places_BxN, dropout, key)
    if kind != 'classes':
        return sampling.losses(kind, parts, local.b_V, targets_B, rows_R[len(targets_B) :], noise.log_chance_V)
    nll_B = class_softmax.negative_log_likelihood(parts, local.b_V, local.classes, targets_B, vocabulary_size)
    return jnp.mean(nll_B), jnp.mean(nll_B)
