"""The exact softmax cross-entropy and its gradients, computed in blocks of examples without a V x B array.

Dims: V vocabulary (this device's words where they are divided), B batch, D inputs of a part, J inputs of all parts
followed by the rows for b and by zeros up to ROW_MULTIPLE, N blocks, S examples of a block.
"""

import functools
import itertools
from typing import Any, Literal

import jax
import jax.numpy as jnp

from nplm_jax.utils.nn import Precision

Part = tuple[jax.Array, jax.Array]  # weights_VxD and the inputs_BxD that they multiply
BIAS_TERMS = {'float32': 1, 'bfloat16': 3}  # rounded terms whose sum is b in float32's precision
ROW_MULTIPLE = {'float32': 1, 'bfloat16': 8}  # products are fastest on a CPU when the rows are a multiple of this


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def blockwise_cross_entropy(
    parts: tuple[Part, ...],
    b_V: jax.Array,
    targets_B: jax.Array,
    precision: Precision,
    block_size: int,
    axis: str | None = None,
) -> jax.Array:
    """Computes the mean of -log P(target), and its gradients, `block_size` examples at a time.

    The value equals the mean of `softmax.cross_entropy(softmax.scores(b_V, parts), targets_B)`, and so do the gradients
    with respect to the weights, the inputs and b. They are computed together with the loss, in three products a block:
    with E = exp(y - max y), s = sum of E over the words, and s subtracted from the target's E, the gradients are
    W^T E / s and E (a / s). So the normaliser divides the few numbers of an input and never the many of E.

    On a CPU these products are fastest when the weights' words lie along the last axis in memory:
    `sharding.MeshSharding.vocab_minor_layout`.

    Args:
        parts: The weights, each with its inputs.
        b_V: The words' biases.
        targets_B: Word ids, int32.
        precision: bfloat16 rounds the weights, the inputs and E in the products; sums and b stay float32. Where a GPU's
            float32 products round to TensorFloat-32, b is rounded with them.
        block_size: Examples whose V scores are held at once.
        axis: The named mesh axis over which the words are divided, each device holding its rows of the weights and of b
            (the paper's section 3.2). Then the devices exchange, for each example, the largest score, the sum of E,
            the target's score and the gradient with respect to the inputs, and nothing that grows with V.

    Returns:
        A float32 scalar, nats a word. It supports reverse-mode differentiation, once.
    """
    return _loss_and_gradients(parts, b_V, targets_B, precision, block_size, axis, gradients=False)[0]


def _forward(
    parts: tuple[Part, ...],
    b_V: jax.Array,
    targets_B: jax.Array,
    precision: Precision,
    block_size: int,
    axis: str | None,
) -> tuple[jax.Array, Any]:
    return _loss_and_gradients(parts, b_V, targets_B, precision, block_size, axis, gradients=True)


def _backward(
    _precision: Precision, _block_size: int, _axis: str | None, gradients: Any, cotangent: jax.Array
) -> tuple[Any, jax.Array, None]:
    parts, b_V = jax.tree.map(lambda g: g * cotangent, gradients)
    return parts, b_V, None


blockwise_cross_entropy.defvjp(_forward, _backward)


def _loss_and_gradients(
    parts: tuple[Part, ...],
    b_V: jax.Array,
    targets_B: jax.Array,
    precision: Precision,
    block_size: int,
    axis: str | None,
    gradients: bool,
) -> tuple[jax.Array, Any]:
    """Returns the loss and, if `gradients`, its gradients in the structure of (parts, b_V)."""
    B = len(targets_B)
    num_blocks = -(-B // block_size)
    padding = -B % num_blocks
    weights, inputs = zip(*parts)
    *ends, first_of_b = itertools.accumulate(x.shape[1] for x in inputs)
    # One matrix for all parts: a product with the few columns of U alone has half the speed, and adding b separately is
    # another pass over y.
    weights_JxV = jnp.concatenate([*(w.T.astype(precision) for w in weights), _bias_rows(b_V, precision, first_of_b)])
    weights_JxV = jax.lax.optimization_barrier(weights_JxV)  # made once, not in each product
    inputs_BxJ = jnp.concatenate([*inputs, jnp.ones((B, len(weights_JxV) - first_of_b))], axis=1)
    # Examples that only fill the last block have inputs of zero, also for b, and so add nothing to any gradient.
    rows_B = targets_B if axis is None else _local_rows(targets_B, len(b_V), axis)
    padded = (jnp.pad(x, [(0, padding)] + [(0, 0)] * (x.ndim - 1)) for x in (inputs_BxJ, rows_B))
    inputs_NxSxJ, targets_NxS = (x.reshape(num_blocks, -1, *x.shape[1:]) for x in padded)
    # Transpose outside the scan: inside, XLA fuses the transpose into the product, which then runs in float32.
    blocks = inputs_NxSxJ, inputs_NxSxJ.transpose(0, 2, 1), targets_NxS
    run_block = functools.partial(_block, weights_JxV, axis, gradients)
    sums_JxV, outputs = run_block(None, [x[0] for x in blocks])  # the first block starts the sums: no zeros are added
    outputs = jax.tree.map(lambda x: x[None], outputs)
    if num_blocks > 1:
        sums_JxV, rest = jax.lax.scan(run_block, sums_JxV, [x[1:] for x in blocks])
        outputs = jax.tree.map(lambda *x: jnp.concatenate(x), outputs, rest)
    nll_B, expected_BxJ = jax.tree.map(lambda x: x.reshape(B + padding, *x.shape[2:])[:B], outputs)
    loss = jnp.mean(nll_B)
    if not gradients:
        return loss, None
    grad_inputs = jnp.split(_reduce('sum', axis, expected_BxJ[:, :first_of_b] / B), ends, axis=1)
    assert sums_JxV is not None
    *grad_weights, grad_b = jnp.split(sums_JxV[: first_of_b + 1] / B, [*ends, first_of_b])
    return loss, (tuple(zip([w.T for w in grad_weights], grad_inputs)), grad_b[0])


def _bias_rows(b_V: jax.Array, precision: Precision, num_before: int) -> jax.Array:
    """Returns b as rows of that precision whose sum is b, then rows of zeros up to ROW_MULTIPLE.

    Each row is what the rows before it leave of b, rounded.
    """
    kept, rest_V, rows = jnp.finfo(precision), b_V, []
    for _ in range(BIAS_TERMS[precision]):
        # reduce_precision and not a cast to bfloat16 and back: XLA may drop such a pair of casts.
        rounded_V = jax.lax.reduce_precision(rest_V, kept.nexp, kept.nmant)
        rows.append(rounded_V.astype(precision))
        rest_V = rest_V - rounded_V
    return jnp.pad(jnp.stack(rows), ((0, -(num_before + len(rows)) % ROW_MULTIPLE[precision]), (0, 0)))


def _block(
    weights_JxV: jax.Array, axis: str | None, gradients: bool, sums_JxV: jax.Array | None, block: Any
) -> tuple[jax.Array | None, Any]:
    """Computes one block, and adds its gradients with respect to the weights to their sum.

    Returns:
        The sum, and for each example the NLL and the gradient with respect to the inputs.
    """
    inputs_SxJ, inputs_JxS, targets_S = block
    precision, examples = weights_JxV.dtype, jnp.arange(len(targets_S))
    y_SxV = _product(inputs_SxJ.astype(precision), weights_JxV, (1, 0))
    largest_S = _reduce('max', axis, jnp.max(y_SxV, axis=1))
    E_SxV = jnp.exp(y_SxV - largest_S[:, None]).astype(precision)
    sum_S = _reduce('sum', axis, jnp.sum(E_SxV, axis=1, dtype=jnp.float32))
    targets_y_S = y_SxV.at[examples, targets_S].get(mode='fill', fill_value=0)
    nll_S = largest_S + jnp.log(sum_S) - _reduce('sum', axis, targets_y_S)
    if not gradients:
        return None, (nll_S, None)
    E_SxV = _replace_targets(E_SxV, examples, targets_S, jnp.exp(targets_y_S - largest_S) - sum_S)
    shares_JxS = inputs_JxS / sum_S[None, :]
    block_JxV = _product(shares_JxS.astype(precision), E_SxV, (1, 0))
    expected_JxS = _product(weights_JxV, E_SxV, (1, 1))
    sums_JxV = block_JxV if sums_JxV is None else sums_JxV + block_JxV
    return sums_JxV, (nll_S, (expected_JxS / sum_S[None, :]).T)


def _replace_targets(E_SxV: jax.Array, examples: jax.Array, targets_S: jax.Array, values_S: jax.Array) -> jax.Array:
    """Returns E with the target's number of each example replaced, unless another device holds that word."""
    values_S = values_S.astype(E_SxV.dtype)
    if E_SxV.dtype == jnp.float32:
        return E_SxV.at[examples, targets_S].set(values_S, mode='drop')
    # Scatter the bits as integers: for bfloat16 XLA on a CPU would convert all of E to float32 and back.
    bits = jax.lax.bitcast_convert_type
    replaced = bits(E_SxV, jnp.uint16).at[examples, targets_S].set(bits(values_S, jnp.uint16), mode='drop')
    return bits(replaced, E_SxV.dtype)


def _reduce(operation: Literal['max', 'sum'], axis: str | None, values: jax.Array) -> jax.Array:
    """Reduces values over the devices that divide the words among them; returns them as they are without an axis."""
    collective = {'max': jax.lax.pmax, 'sum': jax.lax.psum}[operation]
    return values if axis is None else collective(values, axis)


def _local_rows(targets_B: jax.Array, num_words: int, axis: str) -> jax.Array:
    """Returns the targets as rows of this device's weights, `num_words` (no row) for words of other devices."""
    rows_B = targets_B - num_words * jax.lax.axis_index(axis)
    return jnp.where((rows_B >= 0) & (rows_B < num_words), rows_B, num_words)


def _product(left: jax.Array, right: jax.Array, contract: tuple[int, int]) -> jax.Array:
    """Returns a float32 matrix product over one axis of each operand."""
    axes = (((contract[0],), (contract[1],)), ((), ()))
    return jax.lax.dot_general(left, right, axes, preferred_element_type=jnp.float32)
