"""What training minimises."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_network

from nplm_jax.training import objective

V = 31


def test_the_regulariser_counts_the_squares_of_the_weights_and_spares_the_biases():
    params = jax.tree.map(jnp.ones_like, make_network(V).init(jax.random.key(0)))  # n = 4, m = 3, h = 5, direct
    assert float(objective.regulariser(params, 2.0)) == V * 3 + 5 * 9 + V * 5 + V * 9
    grads = jax.grad(objective.regulariser)(params, 0.25)
    assert not grads['b_V'].any() and not grads['d_K'].any()
    assert all((grads[name] == 0.25).all() for name in ('C_VxM', 'H_KxP', 'U_VxK', 'W_VxP'))


def test_the_penalised_nll_is_the_mean_nll_and_the_regulariser():
    network = make_network(V)
    params = network.init(jax.random.key(0))
    contexts = jnp.asarray(np.random.default_rng(0).integers(0, V, (7, 3)), jnp.int32)
    loss, (nll, carry) = objective.penalised_nll(params, network, contexts, jnp.arange(7), 0.1)
    assert carry is None
    nll_B = network.output.nll(params, network.features(params, contexts)[0], jnp.arange(7))
    assert float(nll) == pytest.approx(float(nll_B.mean()), rel=1e-6)
    assert float(loss) == pytest.approx(float(nll + objective.regulariser(params, 0.1)), rel=1e-6)
