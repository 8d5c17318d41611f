"""Compares the LSTM over whole texts with a scan over Flax's cell."""

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nplm_jax.models import lstm

T, S, D, K = 7, 3, 5, 4


@pytest.mark.parametrize('precision,tolerance', [('float32', 1e-5), ('bfloat16', 0.05)])
def test_states_and_gradients_are_those_of_flax(precision, tolerance):
    cell = flax.linen.OptimizedLSTMCell(K)
    keys = jax.random.split(jax.random.key(0), 5)
    x, *carry = (jax.random.normal(key, shape) for key, shape in zip(keys, ((T, S, D), (S, K), (S, K))))
    params = cell.init(keys[3], tuple(carry), x[0])['params']
    params = jax.tree.map(lambda w: w + 0.3 * jax.random.normal(keys[4], w.shape), params)  # no bias is zero

    def flax_read(params, carry, x):
        return jax.lax.scan(lambda carry, x: cell.apply({'params': params}, carry, x), carry, x)

    def objective(read):
        def value(params, carry, x):
            (c, h), h_TxSxK = read(params, carry, x)
            return jnp.sum(jnp.sin(c)) + jnp.sum(h * h) + jnp.sum(jnp.cos(h_TxSxK)), (c, h, h_TxSxK)

        return jax.jit(jax.value_and_grad(value, (0, 1, 2), has_aux=True))(params, tuple(carry), x)

    actual = objective(lambda *arguments: lstm.read(*arguments, precision))
    expected = objective(flax_read)
    for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
