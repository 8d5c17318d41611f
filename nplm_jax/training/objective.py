"""What training minimises: mean negative log-likelihood + R(theta) (the paper's section 2.1, sign turned)."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from nplm_jax.config import OutputSettings
from nplm_jax.distributed import sharding
from nplm_jax.models import nplm, recurrent
from nplm_jax.outputs import blockwise, sampled, two_level

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
    axes: sharding.Axes = sharding.NO_AXES,
) -> tuple[jax.Array, recurrent.State]:
    """Mean NLL of this device's examples, nats a word, and what a recurrent network carries on, else None.

    axes: what is shared out over other devices.
    """
    if isinstance(params, recurrent.Params):
        return recurrent.nll(params, contexts_BxN, targets_B, carry, key, dropout, output, axes.data, axes.model)
    parts = nplm.output_parts(params, contexts_BxN, dropout, key, axes.data)
    return blockwise.mean_nll(parts, params.b_V, targets_B, output.precision, output.block_size, axes.model), None


def penalised_nll(
    params: Params,
    contexts_BxN: jax.Array,
    targets_B: jax.Array,
    decay: float,
    dropout: float = 0.0,
    key: jax.Array | None = None,
    output: OutputSettings = EXACT,
    layout: sharding.Layout = sharding.ONE_DEVICE,
    carry: recurrent.State = None,
) -> tuple[jax.Array, tuple[jax.Array, recurrent.State]]:
    """Returns: mean NLL + R, and with it the mean NLL that perplexity is made of, and what is carried on.

    All in nats a word. carry: the state of a recurrent network's streams.
    """
    of_one_device = functools.partial(nll, dropout=dropout, output=output)
    mean_nll, carry = layout.map(of_one_device)(params, contexts_BxN, targets_B, carry, key)
    return mean_nll + regulariser(params, decay), (mean_nll, carry)


def output_rows(
    params: nplm.Params, targets_B: jax.Array, output: OutputSettings, noise: sampled.Noise | None, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The rows of the output layer that a cheap loss needs. Returns: B x L of each example, S of all; int32."""
    if params.classes is not None:
        return two_level.rows(params.classes, targets_B), jnp.arange(params.classes.num_shortlist, dtype=jnp.int32)
    return targets_B[:, None], sampled.draw(key, noise, output.samples)


def cheap_loss(
    shared: nplm.Params,
    own: nplm.Params,
    targets_B: jax.Array,
    given: tuple[jax.Array, jax.Array, sampled.Noise | None],
    dropout: float,
    kind: str,
    axes: sharding.Axes = sharding.NO_AXES,
) -> tuple[tuple[jax.Array, jax.Array], None]:
    """The loss of output.kind sampled, nce or classes, as a function of what `touched.gather` gathered, without R.

    given: the key of the dropout, the S rows that all examples share, and the noise.
    Returns: (loss, mean NLL), nats a word, the second exact for classes, else an estimate; and nothing to carry on.
    """
    key, rows_S, noise = given
    parts = nplm.parts_of(shared, own.C_VxM.reshape(len(targets_B), -1), dropout, key, axes.data)
    own_weights = [w for w in (own.U_VxK, own.W_VxP) if w is not None]
    y_BxL = blockwise.own_scores(own.b_V, *((w, x) for w, (_, x) in zip(own_weights, parts)))
    if kind != 'two_level':
        return sampled.losses(kind, parts, shared.b_V, y_BxL[:, 0], targets_B, rows_S, noise.log_inclusion_prob_V), None
    nll = jnp.mean(two_level.negative_log_likelihood(parts, shared.b_V, shared.classes, y_BxL, targets_B))
    return (nll, nll), None
