"""Tests the training objective."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import features_of, make_batch, make_network

from nplm_jax.training import gradients as objective

V = 31


def test_dense_gradients_are_those_of_the_mean_nll():
    network = make_network(V)
    params = network.init(jax.random.key(0))
    contexts = jnp.asarray(np.random.default_rng(0).integers(0, V, (7, 3)), jnp.int32)

    def mean_nll(params):
        return network.output.nll(params, features_of(network, params, contexts)[0], jnp.arange(7)).mean()

    gradients = objective.gradients(params, network, make_batch(contexts, jnp.arange(7)))
    nll, expected = jax.value_and_grad(mean_nll)(params)
    assert gradients.carry is None and gradients.view.rows is None
    assert float(gradients.nll) == pytest.approx(float(nll), rel=1e-6)
    for a, b in zip(jax.tree.leaves(gradients.view.shared), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
