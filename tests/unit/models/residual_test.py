"""Tests the residual window network: its inputs, its window, and its independence of later words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_network

from nplm_jax.data.stream import Span
from nplm_jax.models.neural import NeuralLanguageModel

V, M = 13, 3
MODEL = {'model.family': 'residual', 'model.direct': False, 'model.n': 3, 'model.m': M, 'model.averages': 2}


def make(**changes):
    network = make_network(V, {**MODEL, 'train.batch_size': 8, 'model.bptt_length': 4, **changes})
    return network, jax.tree.map(lambda x: 3 * x + 0.1, network.init(jax.random.key(0)))  # all layers have an effect


def test_inputs_are_the_last_words_and_averages_of_those_before():
    body = make()[0].body
    assert body.reach == 8
    e_SxLxM = np.random.default_rng(0).normal(size=(2, 7 + 4, M)).astype(np.float32)
    x_SxTxP = body.inputs(jnp.asarray(e_SxLxM))
    assert x_SxTxP.shape == (2, 4, 4 * M)
    for s in range(2):
        for t in range(4):
            last = 7 + t
            e = e_SxLxM[s]
            pair, four = e[last - 3 : last - 1].sum(0) / 2**0.5, e[last - 7 : last - 3].sum(0) / 2
            expected = np.concatenate([e[last], e[last - 1], pair, four])
            np.testing.assert_allclose(x_SxTxP[s, t], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('tied', [False, True])
def test_a_word_is_predicted_from_the_words_in_its_window_alone(tied):
    network, params = make(**{'model.tied': tied})
    model, random = NeuralLanguageModel(network, params), np.random.default_rng(1)
    words_T = random.integers(1, V, 40)
    log_p_T = model.score(words_T, Span(0, 40))
    for changed in (5, 20):
        other_T = words_T.copy()
        other_T[changed] = (words_T[changed] + 1) % V
        differs_T = np.abs(model.score(other_T, Span(0, 40)) - log_p_T) > 1e-6
        assert model.n == network.body.reach + 1
        assert set(np.flatnonzero(differs_T)) <= set(range(changed, changed + network.body.reach + 1))
        assert differs_T[changed] and differs_T[changed + 1] and differs_T[changed + network.body.reach]


def test_words_read_one_by_one_or_in_parts_give_the_same_features():
    network, params = make()
    read = jax.jit(network.features)
    contexts = jnp.asarray(np.random.default_rng(2).integers(0, V, (2, 12)))
    full = read(params, contexts).features
    state, parts = network.body.start(2), []
    for first in (0, 5):
        part = contexts[:, first : first + 5 if first == 0 else 12]
        features, state, _ = read(params, part, state)
        parts.append(features['U_VxK'])
    np.testing.assert_allclose(jnp.concatenate(parts, 1), full['U_VxK'], rtol=1e-5, atol=1e-5)


def test_matrices_start_in_the_range_that_their_inputs_call_for():
    network, _ = make(**{'model.m': 8, 'model.h': 50})
    params = network.init(jax.random.key(0))
    largest = {
        'C_VxM': 0.1,
        'H_PxK': 10 / (4 * 8) ** 0.5,  # two words and two averages; features are ten times as small as z is meant to be
    }
    for name, limit in largest.items():
        assert 0.8 * limit < float(jnp.abs(params[name]).max()) <= limit, name
    layers = params['layers'].values()
    assert all(0.8 * 50**-0.5 < float(jnp.abs(layer['A_KxF']).max()) <= 50**-0.5 for layer in layers)
    assert not any(layer['B_FxK'].any() for layer in layers)
