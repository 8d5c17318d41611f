"""The paper's network (section 2): y = b + Wx + U tanh(d + Hx), x = (C(w_{t-1}), ..., C(w_{t-n+1})).

Dims: V words, M features a word (m), N context words (n-1), P = N*M, K hidden units (h), B batch.
"""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.config import ModelSettings, OutputSettings
from nplm_jax.outputs import blockwise, two_level


@flax.struct.dataclass
class Params:
    """The free parameters, float32. W is None without direct connections; H, d, U without a hidden layer.

    classes: of a two-level output layer, else None.
    """

    C_VxM: jax.Array
    H_KxP: jax.Array | None
    d_K: jax.Array | None
    U_VxK: jax.Array | None
    W_VxP: jax.Array | None
    b_V: jax.Array
    classes: two_level.ClassWeights | None = None


def init(
    key: jax.Array,
    model: ModelSettings,
    vocabulary_size: int,
    bias: np.ndarray | None = None,
    output: OutputSettings | None = None,
) -> Params:
    """Random parameters: weights uniform in +-1/sqrt(inputs), features uniform in +-0.1, biases zero.

    bias: float32 of |V| to start b from (unigram log-probabilities); zeros when None.
    output: of kind `classes`, it adds their weights; no other kind has any.
    The paper does not say how it initialised.
    """
    V, M, P, K = vocabulary_size, model.m, (model.n - 1) * model.m, model.h
    key_C, key_H, key_U, key_W = jax.random.split(key, 4)
    b_V = jnp.zeros(V) if bias is None else jnp.asarray(bias)

    return Params(
        C_VxM=uniform(key_C, (V, M), 0.1),
        H_KxP=uniform(key_H, (K, P), P**-0.5) if K else None,
        d_K=jnp.zeros(K) if K else None,
        U_VxK=uniform(key_U, (V, K), K**-0.5) if K else None,
        W_VxP=uniform(key_W, (V, P), P**-0.5) if model.direct else None,
        b_V=b_V,
        classes=_init_classes(jax.random.fold_in(key, 4), model, b_V, output) if output else None,
    )


def uniform(key: jax.Array, shape: tuple[int, int], bound: float) -> jax.Array:
    """Numbers in +-bound, float32."""
    return jax.random.uniform(key, shape, jnp.float32, -bound, bound)


def _init_classes(
    key: jax.Array, model: ModelSettings, b_V: jax.Array, output: OutputSettings
) -> two_level.ClassWeights | None:
    """As the other output weights; the biases are the logs of the classes' shares by b."""
    if not (G := output.num_classes(len(b_V))):
        return None
    key_U, key_W = jax.random.split(key)
    K, P, H = model.h, (model.n - 1) * model.m, output.num_shortlist
    size = -(-(len(b_V) - H) // G)
    tail_GL = jnp.pad(b_V[H:], (0, G * size - (len(b_V) - H)), constant_values=two_level.OUT)
    return two_level.ClassWeights(
        U_GxK=uniform(key_U, (G, K), K**-0.5) if K else None,
        W_GxP=uniform(key_W, (G, P), P**-0.5) if model.direct else None,
        b_G=jax.nn.logsumexp(tail_GL.reshape(G, size), axis=1),
        num_shortlist=H,
        words=len(b_V),
    )


def count(params: Params) -> int:
    """How many free parameters there are."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def features(params: Params, contexts_BxN: jax.Array) -> jax.Array:
    """x: the context words' feature vectors, concatenated in the order given. Returns: B x P."""
    return params.C_VxM[contexts_BxN].reshape(contexts_BxN.shape[0], -1)


def hidden(params: Params, x_BxP: jax.Array) -> jax.Array:
    """a = tanh(d + Hx). Returns: B x K."""
    return jnp.tanh(params.d_K[None, :] + x_BxP @ params.H_KxP.T)


def output_parts(
    params: Params,
    contexts_BxN: jax.Array,
    dropout: float = 0.0,
    key: jax.Array | None = None,
    axis: blockwise.Axis = None,
) -> tuple[blockwise.Part, ...]:
    """What the output layer multiplies: (U, a) with a hidden layer, (W, x) with direct connections.

    dropout, key: zero this share of x and of a, and scale up the rest (not in the paper). Off without a key.
    axis: the named axis over which the batch is shared out, if it is: the same numbers are dropped as on one device.
    Returns: pairs of weights_VxD and inputs_BxD, float32.
    """
    return parts_of(params, features(params, contexts_BxN), dropout, key, axis)


def parts_of(
    params: Params, x_BxP: jax.Array, dropout: float, key: jax.Array | None, axis: blockwise.Axis
) -> tuple[blockwise.Part, ...]:
    """`output_parts` from x itself: of `params`, C is not read."""
    if key is not None and dropout:
        key, key_a = jax.random.split(key)
        x_BxP = drop(key, x_BxP, dropout, axis)
    parts = []
    if params.U_VxK is not None:
        a_BxK = hidden(params, x_BxP)
        if key is not None and dropout:
            a_BxK = drop(key_a, a_BxK, dropout, axis)
        parts.append((params.U_VxK, a_BxK))
    if params.W_VxP is not None:
        parts.append((params.W_VxP, x_BxP))
    return tuple(parts)


def scores(params: Params, contexts_BxN: jax.Array) -> jax.Array:
    """Unnormalised log-probabilities y of every word after each context, most recent word first; without classes.

    Returns: y, V x B, float32.
    """
    return blockwise.scores(params.b_V, *output_parts(params, contexts_BxN))


def log_probabilities(params: Params, contexts_BxN: jax.Array) -> jax.Array:
    """log P(w | context) for all |V| words. Returns: B x V, nats."""
    if params.classes is None:
        return blockwise.log_probabilities(scores(params, contexts_BxN)).T
    return two_level.log_probabilities(output_parts(params, contexts_BxN), params.b_V, params.classes).T


def negative_log_likelihood(params: Params, contexts_BxN: jax.Array, targets_B: jax.Array) -> jax.Array:
    """-log P(target | context) of each example, exactly. Returns: B, nats a word."""
    if params.classes is None:
        return blockwise.negative_log_likelihood(scores(params, contexts_BxN), targets_B)
    H, rows_BxL = params.classes.num_shortlist, two_level.rows(params.classes, targets_B)
    parts = output_parts(params, contexts_BxN)
    y_BxL = blockwise.own_scores(params.b_V[rows_BxL], *((w[rows_BxL], x) for w, x in parts))
    alone = [(w[:H], x) for w, x in parts]
    return two_level.negative_log_likelihood(alone, params.b_V[:H], params.classes, y_BxL, targets_B)


def drop(key: jax.Array, values_BxD: jax.Array, rate: float, axis: blockwise.Axis = None) -> jax.Array:
    """Dropout: zero this share of the values, scale up the rest. axis: as in `output_parts`."""
    B, D = values_BxD.shape
    if axis is None:
        keep_BxD = jax.random.bernoulli(key, 1 - rate, (B, D))
    else:  # drawn for the whole batch, of which this device has a part
        keep = jax.random.bernoulli(key, 1 - rate, (B * jax.lax.axis_size(axis), D))
        keep_BxD = jax.lax.dynamic_slice_in_dim(keep, B * jax.lax.axis_index(axis), B)
    return jnp.where(keep_BxD, values_BxD / (1 - rate), 0)
