"""The output layer: scores of all words, their log-probabilities, and the mean loss with its gradients in blocks.

The weights come as parts, one for each kind of input: ((U_VxK, a_BxK), (W_VxP, x_BxP)), the paper's equation 1.
Dims: V words (this device's, where they are shared out), B examples, D inputs of a part, J inputs of all parts, then
those that b takes, then zeros up to MULTIPLE; S examples of a block.
"""

from __future__ import annotations

import functools
import itertools
from typing import Literal

import jax
import jax.numpy as jnp

Part = tuple[jax.Array, jax.Array]
Axis = str | tuple[str, ...] | None  # a named axis of the devices, or several as one
Precision = Literal['float32', 'bfloat16']
TERMS_OF_B = {'float32': 1, 'bfloat16': 3}  # of a sum that is b to float32's precision
MULTIPLE = {'float32': 1, 'bfloat16': 8}  # of the rows of all weights: where the products are fastest on a CPU


def scores(b_V: jax.Array, *parts: Part) -> jax.Array:
    """y = b + sum of weights @ inputs over `parts`, each (weights_VxD, inputs_BxD): the paper's equation 1.

    Returns: y_VxB, float32, words x examples.
    """
    y_VxB = sum(weights_VxD @ inputs_BxD.T for weights_VxD, inputs_BxD in parts)
    return b_V[:, None] + y_VxB


def own_scores(b_BxL: jax.Array, *parts: Part) -> jax.Array:
    """y of L words of each example's own; parts: pairs of weights_BxLxD and inputs_BxD. Returns: B x L, float32."""
    return b_BxL + sum(jnp.sum(weights * inputs_BxD[:, None, :], axis=2) for weights, inputs_BxD in parts)


def log_probabilities(y_VxB: jax.Array) -> jax.Array:
    """log P(word) = y - log sum exp y, stable for scores of any finite size. Returns: V x B, nats."""
    return jax.nn.log_softmax(y_VxB, axis=0)


def negative_log_likelihood(y_VxB: jax.Array, targets_B: jax.Array) -> jax.Array:
    """-log P(target) of each example. Returns: B, nats a word."""
    picked_B = jnp.take_along_axis(y_VxB, targets_B[None, :], axis=0)[0]
    return jax.nn.logsumexp(y_VxB, axis=0) - picked_B


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def mean_nll(
    parts: tuple[Part, ...],
    b_V: jax.Array,
    targets_B: jax.Array,
    precision: Precision,
    block_size: int,
    axis: str | None = None,
) -> jax.Array:
    """Mean of -log P(target) over the examples, `block_size` of them at a time: never a V x B array.

    Equal to the mean of `negative_log_likelihood(scores(b_V, *parts), targets_B)`, and so are its gradients with
    respect to the weights, the inputs and b. These are computed together with the loss, in three products a block:
    with E = exp(y - max y), s = sum E over the words, and s taken from the target's E, the gradients are W^T E / s and
    E (a / s), so that the normaliser divides an input's few numbers and never E's many.

    On a CPU these products are fastest with the weights' words along the last axis in memory:
    `parallel.Layout.words_last`.

    precision: bfloat16 rounds the weights, inputs and E in the products; sums and b stay float32. Where a GPU's float32
    products round to TensorFloat-32, b is rounded with them. Only reverse-mode, once differentiable.

    axis: the named axis over which the words are shared out, each device holding as many rows of the weights and b
    (section 3.2). Then these cross the devices, and nothing of |V| does: of each example the largest score, the sum
    of E and the target's score, and at last the gradients with respect to the inputs.
    Returns: float32 scalar, nats a word.
    """
    return _loss_and_gradients(parts, b_V, targets_B, precision, block_size, axis, gradients=False)[0]


def _forward(parts, b_V, targets_B, precision, block_size, axis):
    return _loss_and_gradients(parts, b_V, targets_B, precision, block_size, axis, gradients=True)


def _backward(_precision, _block_size, _axis, gradients, cotangent):
    parts, b_V = jax.tree.map(lambda g: g * cotangent, gradients)
    return parts, b_V, None


mean_nll.defvjp(_forward, _backward)


def _loss_and_gradients(parts, b_V, targets_B, precision, block_size, axis, gradients):
    """The loss and, if asked for, its gradients in the shape of (parts, b_V)."""
    B = len(targets_B)
    blocks = -(-B // block_size)
    padding = -B % blocks
    weights, inputs = zip(*parts)
    *ends, first_of_b = itertools.accumulate(x.shape[1] for x in inputs)
    # One matrix for all: a product of U's few columns alone has half the speed, and b added apart is a pass over y.
    weights_JxV = jnp.concatenate([*(w.T.astype(precision) for w in weights), _rows_of_b(b_V, precision, first_of_b)])
    weights_JxV = jax.lax.optimization_barrier(weights_JxV)  # made once, not in each product
    inputs_BxJ = jnp.concatenate([*inputs, jnp.ones((B, len(weights_JxV) - first_of_b))], axis=1)
    # Examples that only fill up the last block have inputs of zero, b's too, and so no share in any gradient.
    rows_B = targets_B if axis is None else _own_rows(targets_B, len(b_V), axis)
    inputs, targets = (jnp.pad(x, [(0, padding)] + [(0, 0)] * (x.ndim - 1)) for x in (inputs_BxJ, rows_B))
    inputs, targets = (x.reshape(blocks, -1, *x.shape[1:]) for x in (inputs, targets))
    # Turned out here: XLA would make a transpose in a block part of its product, which it then runs in float32.
    of_blocks = inputs, inputs.transpose(0, 2, 1), targets
    block = functools.partial(_block, weights_JxV, axis, gradients)
    sums_JxV, found = block(None, [x[0] for x in of_blocks])  # before the loop, to begin with its sums and no zeros
    found = jax.tree.map(lambda x: x[None], found)
    if blocks > 1:
        sums_JxV, others = jax.lax.scan(block, sums_JxV, [x[1:] for x in of_blocks])
        found = jax.tree.map(lambda *x: jnp.concatenate(x), found, others)
    nll_B, expected_BxJ = jax.tree.map(lambda x: x.reshape(B + padding, *x.shape[2:])[:B], found)
    loss = jnp.mean(nll_B)
    if not gradients:
        return loss, None
    of_inputs = jnp.split(_over('sum', axis, expected_BxJ[:, :first_of_b] / B), ends, axis=1)
    *of_weights, of_b = jnp.split(sums_JxV[: first_of_b + 1] / B, [*ends, first_of_b])
    return loss, (tuple(zip([w.T for w in of_weights], of_inputs)), of_b[0])


def _rows_of_b(b_V, precision, num_before):
    """b as terms of that precision, each the rounded rest of those before; their sum is b. Zeros fill up MULTIPLE."""
    kept, rest_V, rows = jnp.finfo(precision), b_V, []
    for _ in range(TERMS_OF_B[precision]):
        # Not a cast there and back, which XLA may leave out.
        rounded_V = jax.lax.reduce_precision(rest_V, kept.nexp, kept.nmant)
        rows.append(rounded_V.astype(precision))
        rest_V = rest_V - rounded_V
    return jnp.pad(jnp.stack(rows), ((0, -(num_before + len(rows)) % MULTIPLE[precision]), (0, 0)))


def _block(weights_JxV, axis, gradients, sums_JxV, block):
    """Adds one block's gradients of the weights to their sum, if there is one. Returns: the sum; NLLs and gradients."""
    inputs_SxJ, inputs_JxS, targets_S = block
    precision, examples = weights_JxV.dtype, jnp.arange(len(targets_S))
    y_SxV = _product(inputs_SxJ.astype(precision), weights_JxV, (1, 0))
    largest_S = _over('max', axis, jnp.max(y_SxV, axis=1))
    E_SxV = jnp.exp(y_SxV - largest_S[:, None]).astype(precision)
    sum_S = _over('sum', axis, jnp.sum(E_SxV, axis=1, dtype=jnp.float32))
    targets_y_S = y_SxV.at[examples, targets_S].get(mode='fill', fill_value=0)
    nll_S = largest_S + jnp.log(sum_S) - _over('sum', axis, targets_y_S)
    if not gradients:
        return None, (nll_S, None)
    E_SxV = _put(E_SxV, examples, targets_S, jnp.exp(targets_y_S - largest_S) - sum_S)
    shares_JxS = inputs_JxS / sum_S[None, :]
    of_block_JxV = _product(shares_JxS.astype(precision), E_SxV, (1, 0))
    expected_JxS = _product(weights_JxV, E_SxV, (1, 1))
    sums_JxV = of_block_JxV if sums_JxV is None else sums_JxV + of_block_JxV
    return sums_JxV, (nll_S, (expected_JxS / sum_S[None, :]).T)


def _put(E_SxV, examples, targets_S, values_S):
    """E with one number of each example replaced; those whose target is another device's word stay as they are."""
    values_S = values_S.astype(E_SxV.dtype)
    if E_SxV.dtype == jnp.float32:
        return E_SxV.at[examples, targets_S].set(values_S, mode='drop')
    # As whole numbers: XLA on a CPU would turn all of E to float32 and back.
    bits = jax.lax.bitcast_convert_type
    replaced = bits(E_SxV, jnp.uint16).at[examples, targets_S].set(bits(values_S, jnp.uint16), mode='drop')
    return bits(replaced, E_SxV.dtype)


def _over(what, axis, values):
    """The largest value or the sum over the devices that share out the words; the values where one holds all."""
    reduce = {'max': jax.lax.pmax, 'sum': jax.lax.psum}[what]
    return values if axis is None else reduce(values, axis)


def _own_rows(targets_B, num_words, axis):
    """The targets as rows of this device's weights; those that lie on another device become `num_words`: no row."""
    rows_B = targets_B - num_words * jax.lax.axis_index(axis)
    return jnp.where((rows_B >= 0) & (rows_B < num_words), rows_B, num_words)


def _product(left: jax.Array, right: jax.Array, contract: tuple[int, int]) -> jax.Array:
    """A float32 matrix product over one axis of each operand."""
    axes = (((contract[0],), (contract[1],)), ((), ()))
    return jax.lax.dot_general(left, right, axes, preferred_element_type=jnp.float32)
