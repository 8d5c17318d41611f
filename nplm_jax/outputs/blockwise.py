"""Computes the exact softmax cross-entropy and its gradients in blocks of examples, without a V x B array.

The scores are sums of b and of linear terms, weights @ inputs. In the paper's network, these terms are U a and W x.

Dims: V vocabulary (only the words on this device if words are sharded), B batch, D inputs of a term, J inputs of all
terms and rounded terms of b (BIAS_TERMS), concatenated and padded with zeros to a multiple of ROW_MULTIPLE, N blocks, S
examples per block.
"""

import functools
import itertools
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from nplm_jax.nn import Precision, product_precision
from nplm_jax.outputs.soft_targets import SoftTargets

_ROWS_BY_COLUMNS, _ROWS_BY_ROWS = (((1,), (0,)), ((), ())), (((1,), (1,)), ((), ()))  # contracted axes
LinearTerm = tuple[Array, Array]  # weights_VxD and inputs_BxD
BIAS_TERMS = {'float32': 1, 'bfloat16': 3}  # number of terms of the given dtype whose sum is b at float32 precision
ROW_MULTIPLE = {'float32': 1, 'bfloat16': 8}  # CPU products are fastest if the row count is a multiple of this number


class Teaching(NamedTuple):
    """The arguments of a distillation loss.

    Attributes:
        teachers: The teachers' distributions.
        weight: The weight of the teachers in the distribution to learn, from 0 to 1.
        precision: The precision of the teachers' matrix products.
    """

    teachers: SoftTargets
    weight: float
    precision: Precision


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def blockwise_cross_entropy(
    terms: tuple[LinearTerm, ...],
    b_V: Array,
    targets_B: Array,
    precision: Precision,
    block_size: int,
    axis: str | None = None,
) -> Array:
    """Computes the mean of -log P(target) and its gradients, `block_size` examples at a time.

    The loss and its gradients with respect to weights, inputs and b are the same as for the mean of
    `softmax.cross_entropy`. Each block requires three matrix products. Let E = exp(y - max y), s = sum_v E_v and
    G = E - s * onehot(target). Then
    dNLL/dy = G / s, dNLL/d input = W^T G / s and dNLL/dW = G (input / s)^T. The factor 1 / s multiplies the small input
    instead of the large G.

    On a CPU, these products are fastest if words are the last axis of the weights in memory; see
    `distributed.constraints.vocab_minor_layout`.

    Args:
        terms: The weights and inputs of each term.
        b_V: The word biases.
        targets_B: Word ids, int32.
        precision: If bfloat16, the weights, the inputs and G are rounded to bfloat16 in the products. Sums and b remain
            float32.
        block_size: The number of examples whose V scores are in memory at once.
        axis: The named mesh axis over which words are sharded (the paper's section 3.2). Each device holds its rows of
            the weights and of b. For each example, devices exchange only the largest score, the sum of E, the target's
            score and the gradient with respect to the inputs. None of these grows with V.

    Returns:
        A float32 scalar, nats per word. Only first derivatives in reverse mode are supported.
    """
    return _loss_and_gradients(terms, b_V, targets_B, precision, block_size, axis)[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
def blockwise_distillation(
    terms: tuple[LinearTerm, ...],
    b_V: Array,
    targets_B: Array,
    teachers: SoftTargets,
    weight: float,
    precision: Precision,
    block_size: int,
) -> tuple[Array, Array]:
    """Computes the mean cross-entropy with a mixture of targets and teachers, `block_size` examples at a time.

    The network learns the distribution (1 - weight) onehot(target) + weight q, where q is the teachers' distribution,
    B x V. Only one block of q is in memory at a time. In the notation of `blockwise_cross_entropy`,
    G = E - s * ((1 - weight) onehot(target) + weight q).

    Args:
        terms: The weights and inputs of each term.
        b_V: The word biases.
        targets_B: Word ids, int32.
        teachers: The teachers, treated as constants.
        weight: The weight of the teachers, from 0 to 1.
        precision: See `blockwise_cross_entropy`. The teachers' matrix products use the same precision.
        block_size: The number of examples whose V scores are in memory at once.

    Returns:
        The cross-entropy and the mean NLL, float32 scalars, nats per word. The mean NLL is not differentiable.
    """
    return _distillation_and_gradients(terms, b_V, targets_B, teachers, weight, precision, block_size)[0]


def _distillation_and_gradients(*arguments: Any) -> tuple[tuple[Array, Array], Any]:
    """Returns the results of `blockwise_distillation`, and the gradients of the loss with respect to terms and b."""
    terms, b_V, targets_B, teachers, weight, precision, block_size = arguments
    teaching = Teaching(teachers, weight, precision)
    results, gradients = _loss_and_gradients(terms, b_V, targets_B, precision, block_size, None, teaching)
    return (results[0], results[1]), gradients


def _distillation_backward(
    _weight: float, _precision: Precision, _block_size: int, gradients: Any, cotangents: tuple[Array, Array]
) -> tuple[Any, Array, None, None]:
    terms, b_V = jax.tree.map(lambda g: g * cotangents[0], gradients)
    return terms, b_V, None, None


blockwise_distillation.defvjp(_distillation_and_gradients, _distillation_backward)


def _backward(
    _precision: Precision, _block_size: int, _axis: str | None, gradients: Any, cotangent: Array
) -> tuple[Any, Array, None]:
    terms, b_V = jax.tree.map(lambda g: g * cotangent, gradients)
    return terms, b_V, None


def default_block_size(platform: str, precision: Precision | None = None) -> int:
    """Returns the default number of examples per block for a platform and a precision of the matrix products.

    The precision is None for scores without gradients. Larger blocks need more memory for scores, which then no longer
    fit into the caches of a CPU or the buffers of a TPU. However, each block reads the accumulated weight gradients
    from memory and writes them back. The values are the fastest in experiments/cost/speed and
    experiments/cost/accelerator.
    """
    return {'cpu': 512 if precision == 'float32' else 256, 'tpu': 1024}.get(platform, 4096)


def _loss_and_gradients(
    terms: tuple[LinearTerm, ...],
    b_V: Array,
    targets_B: Array,
    precision: Precision,
    block_size: int,
    axis: str | None,
    teaching: Teaching | None = None,
) -> tuple[Any, Any]:
    """Returns the loss, or with teachers a pair (loss, NLL), and the gradients, structured like (terms, b_V)."""
    B = len(targets_B)
    num_blocks = -(-B // block_size)
    padding = -B % num_blocks
    weights, inputs = zip(*terms)
    *split_points, bias_row = itertools.accumulate(x.shape[1] for x in inputs)
    # All terms are concatenated into one matrix, because a product with only the few columns of U would run at half the
    # speed. The matrix includes b, because adding b separately would require another pass over y.
    weights_JxV = jnp.concatenate([*(w.T.astype(precision) for w in weights), _bias_rows(b_V, precision, bias_row)])
    weights_JxV = jax.lax.optimization_barrier(weights_JxV)  # computed once, not in each product
    inputs_BxJ = jnp.concatenate([*inputs, jnp.ones((B, len(weights_JxV) - bias_row))], axis=1)
    # Padding examples in the last block have only zero inputs, even for b, so they do not contribute to the gradients.
    rows_B = targets_B if axis is None else _local_rows(targets_B, len(b_V), axis)
    taught = () if teaching is None else teaching.teachers.features

    def in_blocks(x: Array) -> Array:
        padded = jnp.pad(x, [(0, padding)] + [(0, 0)] * (x.ndim - 1))
        return padded.reshape(num_blocks, -1, *x.shape[1:])

    inputs_NxSxJ, targets_NxS, features = jax.tree.map(in_blocks, (inputs_BxJ, rows_B, taught))
    # Transpose outside the scan. Inside the scan, XLA would fuse the transpose into the matrix product and would then
    # compute the product in float32.
    blocks = inputs_NxSxJ, inputs_NxSxJ.transpose(0, 2, 1), targets_NxS, features
    run_block = functools.partial(_block, weights_JxV, axis, teaching)
    # The first block initializes the sum, which avoids adding zeros.
    grad_weights_JxV, results = run_block(None, jax.tree.map(lambda x: x[0], blocks))
    results = jax.tree.map(lambda x: x[None], results)
    if num_blocks > 1:
        others = jax.tree.map(lambda x: x[1:], blocks)
        grad_weights_JxV, other_results = jax.lax.scan(run_block, grad_weights_JxV, others)
        results = jax.tree.map(lambda *x: jnp.concatenate(x), results, other_results)
    losses, grad_inputs_BxJ = jax.tree.map(lambda x: x.reshape(B + padding, *x.shape[2:])[:B], results)
    grad_inputs = jnp.split(_reduce('sum', axis, grad_inputs_BxJ[:, :bias_row] / B), split_points, axis=1)
    *grad_weights, grad_b = jnp.split(grad_weights_JxV[: bias_row + 1] / B, [*split_points, bias_row])
    return jax.tree.map(jnp.mean, losses), (tuple(zip([w.T for w in grad_weights], grad_inputs)), grad_b[0])


blockwise_cross_entropy.defvjp(_loss_and_gradients, _backward)


def _bias_rows(b_V: Array, precision: Precision, num_before: int) -> Array:
    """Splits b into rows of the given precision whose sum is b, and appends rows of zeros (see ROW_MULTIPLE).

    Each row is the remainder of b after subtraction of the previous rows, rounded to the precision.
    """
    finfo, remainder_V, rows = jnp.finfo(precision), b_V, []
    for _ in range(BIAS_TERMS[precision]):
        # Use reduce_precision instead of a cast to bfloat16 and back, because XLA may remove a pair of casts.
        rounded_V = jax.lax.reduce_precision(remainder_V, finfo.nexp, finfo.nmant)
        rows.append(rounded_V.astype(precision))
        remainder_V = remainder_V - rounded_V
    return jnp.pad(jnp.stack(rows), ((0, -(num_before + len(rows)) % ROW_MULTIPLE[precision]), (0, 0)))


def _block(
    weights_JxV: Array, axis: str | None, teaching: Teaching | None, grad_weights_JxV: Array | None, block: Any
) -> tuple[Array, Any]:
    """Computes the loss and the gradients of one block of examples, and accumulates the gradients of the weights.

    Returns:
        The accumulated weight gradients, and a pair (losses, gradients) with one row per example: the NLL, or with
        teachers a pair (loss, NLL), and the gradient with respect to the inputs.
    """
    inputs_SxJ, inputs_JxS, targets_S, features = block
    precision = weights_JxV.dtype
    y_SxV = _product(inputs_SxJ.astype(precision), weights_JxV, _ROWS_BY_COLUMNS)
    max_S = _reduce('max', axis, jnp.max(y_SxV, axis=1))
    E_SxV = jnp.exp(y_SxV - max_S[:, None]).astype(precision)
    normaliser_S = _reduce('sum', axis, jnp.sum(E_SxV, axis=1, dtype=jnp.float32))
    # On accelerators, a pass over all scores selects those of the targets, because XLA fuses this pass with others. A
    # scatter would loop over the examples on a TPU.
    choose = jax.lax.platform_dependent
    targets_y_S = choose(y_SxV, targets_S, cpu=_gather_targets, default=_select_targets)
    nll_S = max_S + jnp.log(normaliser_S) - _reduce('sum', axis, targets_y_S)
    losses: Any = nll_S
    target_share_S = normaliser_S  # to be multiplied by the probability of the target in the distribution to learn
    if teaching is not None:
        weight = teaching.weight
        q_SxV = teaching.teachers.replace(features=features).probabilities(teaching.precision)
        losses = nll_S + weight * (targets_y_S - jnp.sum(q_SxV * y_SxV, axis=1)), nll_S
        q_target_S = choose(q_SxV, targets_S, cpu=_gather_targets, default=_select_targets)
        target_share_S = normaliser_S * (1 - weight + weight * q_target_S)
        E_SxV = (E_SxV - (weight * normaliser_S)[:, None] * q_SxV).astype(precision)
    target_G_S = (jnp.exp(targets_y_S - max_S) - target_share_S).astype(precision)
    G_SxV = choose(E_SxV, targets_S, target_G_S, cpu=_scatter_targets, default=_mask_targets)
    scaled_inputs_JxS = inputs_JxS / normaliser_S[None, :]
    block_grad_JxV = _product(scaled_inputs_JxS.astype(precision), G_SxV, _ROWS_BY_COLUMNS)
    grad_inputs_JxS = _product(weights_JxV, G_SxV, _ROWS_BY_ROWS)
    grad_weights_JxV = block_grad_JxV if grad_weights_JxV is None else grad_weights_JxV + block_grad_JxV
    return grad_weights_JxV, (losses, (grad_inputs_JxS / normaliser_S[None, :]).T)


def _product(left: Array, right: Array, axes: Any) -> Array:
    precision = product_precision(right.dtype)
    return jax.lax.dot_general(left, right, axes, precision=precision, preferred_element_type=jnp.float32)


def _gather_targets(y_SxV: Array, targets_S: Array) -> Array:
    """Returns the score of each example's target, or 0 if the target's row is on another device."""
    return y_SxV.at[jnp.arange(len(y_SxV)), targets_S].get(mode='fill', fill_value=0)


def _select_targets(y_SxV: Array, targets_S: Array) -> Array:
    """Computes the same result as `_gather_targets` in a pass over all scores, which is faster on accelerators."""
    return jnp.sum(jnp.where(jax.nn.one_hot(targets_S, y_SxV.shape[1], dtype=bool), y_SxV, 0), axis=1)


def _scatter_targets(E_SxV: Array, targets_S: Array, values_S: Array) -> Array:
    """Replaces the entry of each example's target in E, unless the target's row is on another device."""
    examples = jnp.arange(len(E_SxV))
    if E_SxV.dtype == jnp.float32:
        return E_SxV.at[examples, targets_S].set(values_S, mode='drop')
    # Scatter the bits as integers, because XLA on a CPU would convert all of a bfloat16 E to float32 and back.
    bits = jax.lax.bitcast_convert_type
    replaced = bits(E_SxV, jnp.uint16).at[examples, targets_S].set(bits(values_S, jnp.uint16), mode='drop')
    return bits(replaced, E_SxV.dtype)


def _mask_targets(E_SxV: Array, targets_S: Array, values_S: Array) -> Array:
    """Computes the same result as `_scatter_targets` in a pass over all of E, which is faster on accelerators."""
    return jnp.where(jax.nn.one_hot(targets_S, E_SxV.shape[1], dtype=bool), values_S[:, None], E_SxV)


def _reduce(operation: Literal['max', 'sum'], axis: str | None, values: Array) -> Array:
    """Reduces values over the devices of a mesh axis; returns them unchanged if `axis` is None."""
    collective = {'max': jax.lax.pmax, 'sum': jax.lax.psum}[operation]
    return values if axis is None else collective(values, axis)


def _local_rows(targets_B: Array, num_words: int, axis: str) -> Array:
    """Maps word ids to rows of this device's weights. Words on other devices map to `num_words`, an invalid row."""
    rows_B = targets_B - num_words * jax.lax.axis_index(axis)
    return jnp.where((rows_B >= 0) & (rows_B < num_words), rows_B, num_words)
