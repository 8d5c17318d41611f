"""Compares the blockwise loss with the plain loss in float64 and with finite differences."""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from softmax_reference import assert_close, named, problem, reference

from nplm_jax.outputs import blockwise, softmax
from nplm_jax.outputs.blockwise import blockwise_cross_entropy

LOSSES = jax.jit(jax.value_and_grad(blockwise_cross_entropy, (0, 1)), static_argnums=(3, 4))
# Odd V, a batch that its blocks do not divide, one block, blocks of one, B=1, no hidden layer, no direct connections.
SHAPES = [
    (251, 13, (7, 12), 5),
    (251, 13, (7, 12), 128),
    (251, 13, (12,), 1),
    (1009, 61, (31,), 16),
    (1009, 301, (5, 8), 128),
    (1009, 67, (100,), 67),
    (17, 1, (3,), 128),
    (7, 1, (1, 2), 1),
]


@pytest.mark.parametrize('V,B,widths,block_size', SHAPES)
@pytest.mark.parametrize('precision,tolerance', [('float32', 1e-5), ('bfloat16', 1e-2)])
def test_loss_and_gradients_equal_the_formulas(V, B, widths, block_size, precision, tolerance):
    arguments = problem(V, B, widths)
    assert_close(LOSSES(*arguments, precision, block_size), reference(*arguments), tolerance)


@pytest.mark.parametrize('precision', ['float32', 'bfloat16'])
def test_scores_of_ten_thousand_stay_finite(precision):
    arguments = problem(101, 9, (4, 3), scale=1e4)
    assert float(jnp.abs(softmax.scores(*named(*arguments[:2]))).max()) > 1e4
    assert_close(LOSSES(*arguments, precision, 4), reference(*arguments), 1e-5 if precision == 'float32' else 2e-2)


def test_gradients_equal_finite_differences():
    terms, b_V, targets_B = problem(13, 5, (3, 2))
    loss = jax.jit(lambda p, b: blockwise_cross_entropy(p, b, targets_B, 'float32', 2))
    check_grads(loss, (terms, b_V), 1, ['rev'], 2e-2, 2e-2)


def test_the_loss_alone_equals_the_loss_with_gradients_and_scales():
    arguments = problem(251, 13, (7, 12))
    loss, gradients = LOSSES(*arguments, 'float32', 5)
    alone = jax.jit(blockwise_cross_entropy, static_argnums=(3, 4))
    assert float(alone(*arguments, 'float32', 5)) == pytest.approx(float(loss), rel=1e-6)
    tripled = jax.jit(jax.grad(lambda *g: 3 * blockwise_cross_entropy(*g, 'float32', 5), (0, 1)))(*arguments)
    assert_close(tripled, jax.tree.map(lambda x: 3 * x, gradients), 1e-6)


def test_words_that_are_divided_give_the_loss_and_the_gradients_of_all():
    terms, b_V, targets_B = problem(12, 5, (3, 2))
    loss, (gradients, b_gradient_V) = LOSSES(terms, b_V, targets_B, 'float32', 5)
    parts = tuple((weights.reshape(3, 4, -1), inputs) for weights, inputs in terms)

    def of_a_part(parts, b):
        loss = functools.partial(blockwise_cross_entropy, precision='float32', block_size=5, axis='words')
        return jax.value_and_grad(lambda p, b: loss(p, b, targets_B), (0, 1))(parts, b)

    mapped = jax.vmap(of_a_part, (((0, None),) * len(terms), 0), axis_name='words')
    losses, (part_gradients, b_gradients) = jax.jit(mapped)(parts, b_V.reshape(3, 4))
    np.testing.assert_allclose(losses, [loss] * 3, rtol=1e-6)
    np.testing.assert_allclose(b_gradients.ravel(), b_gradient_V, atol=1e-7)
    for (weights, inputs), (part_weights, part_inputs) in zip(gradients, part_gradients, strict=True):
        np.testing.assert_allclose(part_weights.reshape(12, -1), weights, atol=1e-7)
        np.testing.assert_allclose(part_inputs, [inputs] * 3, atol=1e-7)


@pytest.mark.parametrize('precision', ['float32', 'bfloat16'])
def test_sums_count_every_word_and_every_example(precision):
    """A sum in bfloat16 would stop at 256, as the next number is 258."""
    V, B = 4099, 1003
    terms, targets_B = ((jnp.zeros((V, 2)), jnp.ones((B, 2))),), jnp.zeros(B, jnp.int32)
    loss, (((weights_VxD, _),), b_V) = LOSSES(terms, jnp.zeros(V), targets_B, precision, 128)
    assert float(loss) == pytest.approx(math.log(V), rel=1e-6)
    rounding = 1e-6 if precision == 'float32' else 2**-8
    for gradients_V in (b_V, weights_VxD[:, 0]):
        assert float(gradients_V[0]) == pytest.approx(1 / V - 1, rel=rounding)
        np.testing.assert_allclose(gradients_V[1:], 1 / V, rtol=max(rounding, 1e-5))
    # All words' weights cancel in the inputs' gradients.
    large = jnp.full((V, 2), 3.0)
    _, (((_, inputs_BxD),), _) = LOSSES(((large, jnp.ones((B, 2))),), jnp.zeros(V), targets_B, precision, 128)
    np.testing.assert_allclose(inputs_BxD, 0, atol=3 * rounding / B)  # weights of 3


@pytest.mark.parametrize('precision', ['float32', 'bfloat16'])
def test_b_keeps_its_precision(precision):
    """In bfloat16, 10.003 would be rounded to 10."""
    b_V = jnp.array([-10.003, 0.0, -jnp.pi * 1e3])
    loss, _ = LOSSES(((jnp.zeros((3, 2)), jnp.ones((1, 2))),), b_V, jnp.zeros(1, jnp.int32), precision, 1)
    assert float(loss) == pytest.approx(10.003 + math.log1p(math.exp(-10.003)), rel=1e-6)


@pytest.mark.parametrize('precision', ['float32', 'bfloat16'])
def test_no_array_of_words_by_batch_is_held(precision):
    """In the compiled program, the largest array is that of the weights, and the total is below 2 GB."""
    V, B, K = 262_144, 1024, 300
    shape = jax.ShapeDtypeStruct
    arguments = (((shape((V, K), 'float32'), shape((B, K), 'float32')),), shape((V,), 'float32'), shape((B,), 'int32'))
    compiled = LOSSES.lower(*arguments, precision, 128).compile()
    shapes = re.findall(r'\b[a-z]+[0-9]+\[([0-9,]+)\]', compiled.as_text())
    of_b = {'float32': 1, 'bfloat16': 4}[precision]  # rows in addition to those of the weights
    assert max(math.prod(map(int, dims.split(','))) for dims in shapes) <= V * (K + of_b) < V * B
    assert compiled.memory_analysis().temp_size_in_bytes < 2e9


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_the_passes_of_accelerators_take_and_replace_the_numbers_that_a_cpu_gathers_and_scatters(dtype):
    y_SxV = jnp.asarray(np.random.default_rng(0).normal(size=(6, 11)), dtype)
    targets_S, values_S = jnp.asarray([0, 10, 3, 11, 5, 3]), jnp.arange(6.0).astype(dtype)  # 11: on another device
    np.testing.assert_array_equal(
        blockwise._select_targets(y_SxV, targets_S), blockwise._gather_targets(y_SxV, targets_S)
    )
    masked = blockwise._mask_targets(y_SxV, targets_S, values_S)
    assert masked.dtype == y_SxV.dtype
    np.testing.assert_array_equal(masked, blockwise._scatter_targets(y_SxV, targets_S, values_S))
    np.testing.assert_array_equal(masked[3], y_SxV[3])
