"""Tests functions that all networks use."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nplm_jax import nn


def keys_of(num_streams, seed=0):
    return nn.Keys.of_streams(jax.random.key(seed), jnp.arange(num_streams))


def test_dropout_zeroes_its_share_and_keeps_the_mean():
    dropped = nn.dropout(keys_of(400), jnp.ones((400, 300)), 0.25)
    assert float((dropped == 0).mean()) == pytest.approx(0.25, abs=0.01)
    assert float(dropped.mean()) == pytest.approx(1, abs=0.01)
    assert set(jnp.unique(dropped).tolist()) == {0.0, float(jnp.float32(1) / jnp.float32(0.75))}


def test_masks_of_streams_of_calls_and_of_words_differ():
    keys = keys_of(3)
    masks = [np.asarray(nn.dropout(k, jnp.ones((3, 4, 50)), 0.5)) for k in (keys, keys.fold_in(1), keys.fold_in(2))]
    rows = np.concatenate([mask.reshape(12, 50) for mask in masks])
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_rows_that_share_a_mask_are_zeroed_alike_and_others_are_not():
    masks = np.asarray(nn.dropout(keys_of(3), jnp.ones((3, 4, 50)), 0.5, broadcast_dims=(1,)))
    assert (masks == masks[:, :1]).all()
    assert (masks[0] != masks[1]).any() and (masks[1] != masks[2]).any()


@pytest.mark.parametrize('rate', [0.1, 0.5, 0.7])
@pytest.mark.parametrize('shape', [(8, 5), (4, 1, 7), (2,)])
def test_each_share_of_a_batch_draws_its_rows_of_the_whole_mask_and_no_others(shape, rate):
    key, values, streams = jax.random.key(3), jnp.ones((3 * shape[0], *shape[1:])), jnp.arange(3 * shape[0])
    whole = nn.dropout(nn.Keys.of_streams(key, streams).fold_in(7), values, rate)
    for part in np.split(np.arange(3 * shape[0]), 3):
        keys = nn.Keys.of_streams(key, streams[part]).fold_in(7)
        np.testing.assert_array_equal(nn.dropout(keys, values[part], rate), whole[part])


def test_weights_are_dropped_for_all_streams_alike_and_independently_of_their_values():
    kept = nn.drop_weights(keys_of(3).shared, jnp.ones((40, 50)), 0.5) > 0
    assert 0.4 < float(kept.mean()) < 0.6
    assert not np.array_equal(kept[:3], nn.dropout(keys_of(3), jnp.ones((3, 50)), 0.5) > 0)


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
