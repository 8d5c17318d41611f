"""Compares the quasi-recurrent network with its formula in float64."""

import jax
import numpy as np
from helpers import make_network, refuses

from nplm_jax.data.stream import Span
from nplm_jax.models.neural import NeuralLanguageModel

V, M, K = 19, 5, 7
WORDS_T = np.random.default_rng(0).integers(1, V, 1000)


def make(**changes):
    shape = {'model.family': 'qrnn', 'model.m': M, 'model.h': K, 'model.layers': 2, 'model.direct': False}
    streams = {'model.dropout': 0.0, 'train.batch_size': 24, 'model.bptt_length': 12}
    network = make_network(V, {**shape, **streams, **changes})
    random = iter(jax.random.split(jax.random.key(1), 99))
    params = jax.tree.map(lambda x: x + 0.3 * jax.random.normal(next(random), x.shape), network.init(jax.random.key(0)))
    return network, params, jax.tree.map(lambda x: np.asarray(x, np.float64), params)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_it_is_the_formula_in_float64_on_a_thousand_words():
    network, params, exact = make()
    cells = [exact['cell'], exact['cell_1']]
    states, before, expected = [np.zeros(K), np.zeros(K)], np.zeros(M), []
    for previous, word in zip([0, *WORDS_T[:-1]], WORDS_T):
        x = e = exact['C_VxM'][previous]
        for i, cell in enumerate(cells):
            a = x @ cell['W_DxG'] + cell['b_G'] + (before @ cell['W_before_DxG'] if i == 0 else 0)
            z, f, o = np.tanh(a[:K]), sigmoid(a[K : 2 * K]), sigmoid(a[2 * K :])
            states[i] = f * states[i] + (1 - f) * z
            x = o * states[i]
        before = e
        y = exact['b_V'] + exact['U_VxK'] @ x
        expected.append(y[word] - np.log(np.exp(y - y.max()).sum()) - y.max())
    found = NeuralLanguageModel(network, params).score(WORDS_T, Span(0, len(WORDS_T)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_recurrent_weights_that_it_has_not_are_not_dropped():
    with refuses('model.weight_dropout'):
        make(**{'model.weight_dropout': 0.5})


def test_the_output_weights_are_not_drawn_from_the_key_of_another_matrix():
    params = make()[0].init(jax.random.key(0))
    U, W_before = (np.asarray(x).ravel()[:100] for x in (params['U_VxK'], params['cell']['W_before_DxG']))
    assert abs(np.corrcoef(U, W_before)[0, 1]) < 0.5
