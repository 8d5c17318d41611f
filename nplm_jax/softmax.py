"""The output layer: scores of all words, their log-probabilities, and the mean loss with its gradients in blocks.

The weights come as parts, one for each kind of input: ((U_VxK, a_BxK), (W_VxP, x_BxP)), the paper's equation 1.
Dims: V words (this device's, where they are shared out), B examples, D inputs of a part, K inputs of all parts,
S examples of a block.
"""

from __future__ import annotations

import functools
from typing import Literal

import jax
import jax.numpy as jnp

Part = tuple[jax.Array, jax.Array]
Axis = str | tuple[str, ...] | None  # a named axis of the devices, or several as one
Precision = Literal['float32', 'bfloat16']
TRANSPOSE_FROM = {'float32': 256, 'bfloat16': 32}  # examples: below, a transposed copy costs more than it saves


def scores(b_V: jax.Array, *parts: Part) -> jax.Array:
    """y = b + sum of weights @ inputs over `parts`, each (weights_VxD, inputs_BxD): the paper's equation 1.

    Returns: y_VxB, float32. Held words x examples, as both products of the backward pass are fast on a CPU then.
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
    with E = exp(y - max y) and s = sum E over the words, the gradients are W^T E / s and E (a / s), so that the
    normaliser divides an input's few numbers and never E's many, less what the targets add.

    precision: bfloat16 rounds the weights, inputs and E in the products; sums, b and the targets' scores stay
    float32. Only reverse-mode, once differentiable.

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
    transpose = gradients and B >= TRANSPOSE_FROM[precision]
    step = _make_step([w.astype(precision) for w in weights], b_V, transpose, axis)
    is_real_B = (jnp.arange(B + padding) < B).astype(jnp.float32)
    of_examples = ([jnp.pad(x, ((0, padding), (0, 0))) for x in inputs], is_real_B)
    sums = jax.tree.map(jnp.zeros_like, (list(weights), b_V)) if gradients else None
    sums, found = jax.lax.scan(step, sums, jax.tree.map(lambda x: x.reshape(blocks, -1, *x.shape[1:]), of_examples))
    log_sum_B, expected = jax.tree.map(lambda x: x.reshape(B + padding, *x.shape[2:])[:B], found)
    rows_B = targets_B if axis is None else _own_rows(targets_B, len(b_V), axis)
    *of_targets, b_B = [_rows(w, rows_B, axis) for w in (*weights, b_V)]
    target_scores_B = _over('sum', axis, b_B + sum(jnp.sum(w * x, axis=1) for w, x in zip(of_targets, inputs)))
    loss = jnp.mean(log_sum_B - target_scores_B)
    if not gradients:
        return loss, None
    weight_gradients = [w.at[rows_B].add(-x) / B for w, x in zip(sums[0], inputs)]
    input_gradients = _over('sum', axis, [(mean - w) / B for mean, w in zip(expected, of_targets)])
    return loss, (tuple(zip(weight_gradients, input_gradients)), sums[1].at[rows_B].add(-1.0) / B)


def _over(what, axis, values):
    """The largest value or the sum over the devices that share out the words; the values where one holds all."""
    reduce = {'max': jax.lax.pmax, 'sum': jax.lax.psum}[what]
    return values if axis is None else reduce(values, axis)


def _own_rows(targets_B, num_words, axis):
    """The targets as rows of this device's weights; those that lie on another device become `num_words`: no row."""
    rows_B = targets_B - num_words * jax.lax.axis_index(axis)
    return jnp.where((rows_B >= 0) & (rows_B < num_words), rows_B, num_words)


def _rows(weights, rows_B, axis):
    """The rows asked for; zeros for those that this device does not hold."""
    return weights[rows_B] if axis is None else weights.at[rows_B].get(mode='fill', fill_value=0)


def _make_step(weights, b_V, transpose, axis):
    """What is done with one block of examples: log sum exp y, and what the gradients take from all words.

    transpose: to make transposed copies of the weights for the products with E, which are faster then.
    """
    # The barrier keeps XLA from folding the copy into the product again, which it then cannot run in bfloat16.
    transposed = [jax.lax.optimization_barrier(w.T) for w in weights] if transpose else None
    sum_up = SUM_UP[str(weights[0].dtype)]

    def step(sums, block):
        inputs, is_real_S = block
        y_VxS = sum(_product(w, x, (1, 1)) for w, x in zip(weights, inputs)) + b_V[:, None]
        largest_S = _over('max', axis, jnp.max(y_VxS, axis=0))
        E_VxS = jnp.exp(y_VxS - largest_S[None, :]).astype(weights[0].dtype)
        sum_S = _over('sum', axis, jnp.sum(E_VxS, axis=0, dtype=jnp.float32))
        log_sum_S = largest_S + jnp.log(sum_S)
        if sums is None:
            return None, (log_sum_S, None)
        sums = jax.tree.map(jnp.add, sums, sum_up(E_VxS, inputs, (is_real_S / sum_S)[:, None]))
        if transpose:
            expected = [_product(w, E_VxS, (1, 0)) for w in transposed]
        else:
            expected = [_product(w, E_VxS, (0, 0)) for w in weights]
        return sums, (log_sum_S, [(x / sum_S[None, :]).T for x in expected])

    return step


def _apart(E_VxS, inputs, share_Sx1):
    """Sums over the examples of a block, each with its share: of E times the inputs of each part, and of E alone."""
    *of_inputs, alone = [_product(E_VxS, x, (1, 0)) for x in (*(x * share_Sx1 for x in inputs), share_Sx1)]
    return of_inputs, alone[:, 0]


def _as_a_column(E_VxS, inputs, share_Sx1):
    """The same, the sum of E being a column more of the first product, which is copied to part them again."""
    one = jnp.ones_like(share_Sx1)
    shares = [x * share_Sx1 for x in (jnp.concatenate([inputs[0], one], axis=1), *inputs[1:])]
    both, *others = [_product(E_VxS, x, (1, 0)) for x in shares]
    return [both[:, :-1], *others], both[:, -1]


def _product(left: jax.Array, right: jax.Array, contract: tuple[int, int]) -> jax.Array:
    """A float32 matrix product over one axis of each operand, both rounded to the left one's type."""
    axes = (((contract[0],), (contract[1],)), ((), ()))
    return jax.lax.dot_general(left, right.astype(left.dtype), axes, preferred_element_type=jnp.float32)


SUM_UP = {'float32': _apart, 'bfloat16': _as_a_column}  # the faster of the two: experiments/speed/forms.py
