"""What the networks' files share."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nplm_jax import nn


def test_dropout_zeroes_its_share_and_keeps_the_mean():
    dropped = nn.dropout(jax.random.key(0), jnp.ones((400, 300)), 0.25)
    assert float((dropped == 0).mean()) == pytest.approx(0.25, abs=0.01)
    assert float(dropped.mean()) == pytest.approx(1, abs=0.01)
    assert set(jnp.unique(dropped).tolist()) == {0.0, float(jnp.float32(1) / jnp.float32(0.75))}


def test_rows_that_share_a_mask_are_zeroed_alike_and_others_are_not():
    masks = np.asarray(nn.dropout(jax.random.key(0), jnp.ones((3, 4, 50)), 0.5, broadcast_dims=(1,)))
    assert (masks == masks[:, :1]).all()
    assert (masks[0] != masks[1]).any() and (masks[1] != masks[2]).any()


def test_a_mask_does_not_depend_on_how_the_rows_are_arranged():
    """So that a body of any rank drops what one of examples drops."""
    key = jax.random.key(0)
    flat, streams = (nn.dropout(key, jnp.ones(shape), 0.5) for shape in ((12, 5), (3, 4, 5)))
    np.testing.assert_array_equal(flat.reshape(3, 4, 5), streams)


@pytest.mark.parametrize('rate', [0.1, 0.5, 0.7])
@pytest.mark.parametrize('shape', [(8, 5), (4, 1, 7), (2,)])
def test_each_share_of_a_batch_draws_its_rows_of_the_whole_mask_and_no_others(shape, rate):
    key, values = jax.random.key(3), jnp.ones((3 * shape[0], *shape[1:]))
    whole = nn.dropout(key, values, rate)
    for number in range(3):
        part = nn.Microbatch(None, jnp.asarray(number), 3)
        dropped = jax.jit(lambda v, part=part: nn.dropout(key, v, rate, part))(values[: shape[0]])
        np.testing.assert_array_equal(dropped, whole[number * shape[0] : (number + 1) * shape[0]])


def test_a_product_takes_arrays_of_any_rank():
    left, right = jnp.arange(24.0).reshape(2, 3, 4), jnp.arange(8.0).reshape(4, 2)
    np.testing.assert_allclose(nn.matmul(left, right), np.einsum('abc,cd->abd', left, right))
    assert nn.matmul(left, right, 'bfloat16').shape == (2, 3, 2)


def test_a_bfloat16_product_rounds_its_factors_and_those_of_its_gradients_alone():
    keys = jax.random.split(jax.random.key(0), 3)
    left, right, cotangent = (jax.random.normal(key, shape) for key, shape in zip(keys, ((5, 7), (7, 3), (5, 3))))
    rounded = lambda x: np.asarray(x.astype(jnp.bfloat16), np.float64)  # noqa: E731
    product, pullback = jax.vjp(lambda a, b: nn.matmul(a, b, 'bfloat16'), left, right)
    np.testing.assert_allclose(product, rounded(left) @ rounded(right), rtol=1e-5, atol=1e-5)
    grad_left, grad_right = pullback(cotangent)
    np.testing.assert_allclose(grad_left, rounded(cotangent) @ rounded(right).T, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(grad_right, rounded(left).T @ rounded(cotangent), rtol=1e-5, atol=1e-5)
    exact = jax.vjp(lambda a, b: nn.matmul(a, b, 'float32'), left, right)[0]
    assert float(jnp.abs(exact - product).max()) > 1e-4
    np.testing.assert_allclose(exact, np.asarray(left, np.float64) @ np.asarray(right), rtol=1e-5, atol=1e-5)
