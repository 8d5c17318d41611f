"""Compares the attention of the attentive Mogrifier with its formula, implemented as a loop over words in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_network

V, M, K, R, T = 11, 4, 6, 3, 9
BODY = {'model.family': 'attentive_mogrifier', 'model.direct': False, 'model.m': M, 'model.h': K, 'model.memory': R}
STREAMS = {'train.batch_size': 8, 'model.bptt_length': 4}
STARTS_SxT = np.zeros((2, T), bool)
STARTS_SxT[0, [0, 4, 5]] = STARTS_SxT[1, 2] = True


def make(**changes):
    body = make_network(V, BODY | STREAMS | changes).body
    params = body.init(jax.random.key(0), V)
    recall = params['recall'] | {'q_K': jnp.linspace(-2.0, 4.0, body.h), 's_1': jnp.array([0.3])}
    return body, jax.tree.map(lambda x: 3 * x, params) | {'recall': recall}


def recall_by_formula(params, h_TxK, e_TxM, starts_T):
    """Returns A sum_i a_i C(w_i) after each word of a text."""
    A_MxK, q_K, s_1 = (np.asarray(params[name], float) for name in ('A_MxK', 'q_K', 's_1'))
    n_TxK = h_TxK / np.sqrt(np.mean(h_TxK**2, axis=1, keepdims=True) + 1e-5)
    recalled = []
    for t in range(len(h_TxK)):
        line = max((i for i in range(t + 1) if starts_T[i]), default=0)
        words = range(max(line, t - R), t + 1)
        before = [np.zeros(h_TxK.shape[1]) if i == line else n_TxK[i - 1] for i in words]
        weights = np.exp([12 * np.mean(q_K * n_TxK[t] * n_K) for n_K in before])
        mean_M = sum(weight * e_TxM[i] for weight, i in zip(weights, words)) / (np.exp(s_1) + weights.sum())
        recalled.append(mean_M @ A_MxK)
    return np.stack(recalled)


@pytest.mark.parametrize('starts_SxT', [None, STARTS_SxT], ids=('text', 'lines'))
@pytest.mark.parametrize('changes', [{}, {'model.tied': True}, {'model.tied': True, 'model.h': M}], ids=str)
def test_the_output_adds_the_recalled_words_to_that_of_the_lstm(changes, starts_SxT):
    body, params = make(**changes)
    e_SxTxM = jax.random.normal(jax.random.key(1), (2, T, M))
    (found_SxTxD,) = jax.jit(body.features)(params, e_SxTxM, body.start(2), None, starts_SxT).features.values()
    h_SxTxK, _ = body.read_layers(params, e_SxTxM, body.start(2)['layers'], None, starts_SxT)
    lines_SxT = np.zeros((2, T), bool) if starts_SxT is None else starts_SxT
    words = zip(np.asarray(h_SxTxK), np.asarray(e_SxTxM), lines_SxT)
    recalled_SxTxK = np.stack([recall_by_formula(params['recall'], *of_stream) for of_stream in words])
    expected = h_SxTxK + recalled_SxTxK
    if body.is_projected:
        expected = expected @ params['P_KxM']
    assert np.abs(recalled_SxTxK).max() > 0.1
    np.testing.assert_allclose(found_SxTxD, expected, rtol=1e-4, atol=1e-5)


def test_at_first_a_tied_network_raises_the_scores_of_the_words_that_it_recalls():
    body = make_network(V, BODY | STREAMS | {'model.tied': True, 'model.h': M}).body
    params = body.init(jax.random.key(0), V)
    params['recall']['s_1'] = jnp.array([-100.0])  # the weights of the words then sum to 1
    e_1x1xM = params['C_VxM'][None, 7:8]
    h_1x1xM, _ = body.read_layers(params, e_1x1xM, body.start(1)['layers'], None, None)
    (found_1x1xM,) = body.features(params, e_1x1xM, body.start(1)).features.values()
    np.testing.assert_allclose(found_1x1xM - h_1x1xM, 0.3 * e_1x1xM, rtol=1e-5, atol=1e-7)


def test_without_weight_tying_the_recalled_features_and_the_output_matrix_are_independent():
    network = make_network(V, BODY | STREAMS)
    params = network.init(jax.random.key(0))
    correlation = np.corrcoef(params['recall']['A_MxK'].ravel(), params['U_VxK'][:M].ravel())[0, 1]
    assert abs(correlation) < 0.7
