"""Tests the Transformer whose input is the paper's concatenation."""

import jax
import numpy as np
import pytest
from helpers import make_network

V, M = 19, 5


def make(family, **changes):
    shape = {'model.family': family, 'model.m': M, 'model.h': 6, 'model.layers': 2, 'model.direct': False}
    shape |= {'model.heads': 2, 'model.memory': 4}
    streams = {'model.dropout': 0.0, 'train.batch_size': 24, 'model.bptt_length': 12}
    network = make_network(V, {**shape, **streams, **changes})
    random = iter(jax.random.split(jax.random.key(1), 99))
    return network, jax.tree.map(
        lambda x: x + 0.3 * jax.random.normal(next(random), x.shape), network.init(jax.random.key(0))
    )


@pytest.mark.parametrize('n', [2, 4])
def test_it_is_a_transformer_over_the_papers_x(n):
    network, params = make('transformer_n', **{'model.n': n})
    plain, _ = make('transformer', **{'model.m': (n - 1) * M})
    ids = np.concatenate([[0], np.random.default_rng(0).integers(1, V, 30)])
    e_TxM = np.concatenate([np.zeros((n - 2, M)), np.asarray(params['C_VxM'])[ids]])
    x_TxP = np.stack([e_TxM[t : t + n - 1][::-1].ravel() for t in range(len(ids))]).astype(np.float32)
    expected = plain.body.features(params, x_TxP[None], plain.body.start(1)).features['U_VxK']
    found = network.features(params, ids[None]).features['U_VxK']
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert network.body.reach == plain.body.reach + n - 2


def test_a_state_has_no_empty_arrays():
    network, _ = make('transformer_n', **{'model.n': 2})
    assert all(leaf.size for leaf in jax.tree.leaves(network.body.start(3)))  # Orbax does not write empty arrays
