"""Tests that the LSTM over a window equals an LSTM that starts at each window, whatever precedes it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_network, refuses

from nplm_jax.data.stream import Span
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.nn import Keys

V, N = 13, 4
CHANGES = {
    'model.direct': False,
    'model.n': N + 1,
    'model.layers': 2,
    'model.tied': True,
    'train.batch_size': 10,
    'model.bptt_length': 5,
}
WORDS_T = np.random.default_rng(1).integers(1, V, 40)


def make(family):
    network = make_network(V, {**CHANGES, 'model.family': family})
    return network, jax.tree.map(lambda x: 3 * x + 0.1, network.init(jax.random.key(0)))


def test_a_word_is_predicted_from_the_words_in_its_window_alone():
    model = NeuralLanguageModel(*make('window_lstm'))
    assert model.n == N + 1
    log_p_T = model.score(WORDS_T, Span(0, 40))
    other_T = WORDS_T.copy()
    other_T[20] = (WORDS_T[20] + 1) % V
    differs_T = np.abs(model.score(other_T, Span(0, 40)) - log_p_T) > 1e-6
    assert np.flatnonzero(differs_T).tolist() == list(range(20, 20 + N + 1))
    np.testing.assert_allclose(model.score(WORDS_T, Span(10, 40)), log_p_T[10:], rtol=1e-5)  # whatever was read before


def test_a_window_is_what_an_lstm_of_the_same_parameters_reads_from_its_start():
    network, params = make('window_lstm')
    lstm, _ = make('lstm')
    windows_BxN = jnp.asarray(np.lib.stride_tricks.sliding_window_view(WORDS_T, N)[:7])
    state = jax.tree.map(np.asarray, network.body.start(7))
    last = jax.jit(lstm.features)(params, windows_BxN, state).features['C_VxM'][:, -1]
    actual = jax.jit(network.features)(params, windows_BxN, state)
    np.testing.assert_allclose(actual.features['C_VxM'][:, 0], last, rtol=1e-5, atol=1e-6)
    jax.tree.map(np.testing.assert_array_equal, actual.state, state)  # the next windows are read from there
    log_p_BxV = jax.jit(lstm.output.log_probabilities)(params, {'C_VxM': last})
    model = NeuralLanguageModel(network, params)
    np.testing.assert_allclose(model.next_word(np.asarray(windows_BxN)), log_p_BxV, rtol=1e-5, atol=1e-5)


def test_training_predicts_each_word_of_a_stretch_from_the_words_of_it_before():
    network, params = make('window_lstm')
    lstm, _ = make('lstm')
    words_2x5 = jnp.asarray(WORDS_T[:10].reshape(2, 5))  # two stretches
    keys = Keys.of_streams(jax.random.key(0), jnp.arange(2))
    expected, actual = (
        jax.jit(each.features)(params, words_2x5, None, keys).features['C_VxM'] for each in (lstm, network)
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('n', [2, 7])
def test_a_window_that_training_never_reads_is_refused(n):
    with refuses('model.n'):
        make_network(V, {**CHANGES, 'model.family': 'window_lstm', 'model.n': n})
