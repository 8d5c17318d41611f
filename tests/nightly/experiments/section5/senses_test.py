"""Tests the window network with several senses per word. `seams_test` trains it with every output layer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    DATA,
    SPARSE,
    assert_close,
    check_eight_devices,
    check_resumed,
    features_of,
    make_model,
    make_network,
    refuses,
    small_settings,
    train,
)
from helpers import SENSES as SENSES_PATH
from jax.test_util import check_grads

from nplm_jax.data.stream import Span
from nplm_jax.inference import generation
from nplm_jax.inference.perplexity import evaluate

V, N, M, S = 13, 3, 3, 3
SENSES = {'model.family': SENSES_PATH, 'model.number': S}
FEATURES_OF = jax.jit(features_of, static_argnums=0)


def make(**changes):
    network = make_network(V, {**SENSES, **changes})
    return network, jax.tree.map(lambda x: 5 * x + 0.1, network.init(jax.random.key(0)))  # makes contexts decisive


def numpy_features(rows_NxR, S):
    """Returns e_1 ... e_N of one example, and pi, computed by loops in float64."""
    all_NxGxM = np.asarray(rows_NxR, np.float64).reshape(len(rows_NxR), 2 * S - 1, -1)
    e, pi = [], []
    for i, own in enumerate(all_NxGxM):
        c = np.mean([other[:S].mean(axis=0) for j, other in enumerate(all_NxGxM) if j != i], axis=0)
        c = c / np.sqrt(np.mean(c**2) + 1e-6)
        scores = [gate @ c for gate in own[S:]] + [0.0]
        pi.append(np.exp(scores) / np.exp(scores).sum())
        e.append(sum(p * C for p, C in zip(pi[-1], own[:S])))
    return np.array(e), np.array(pi)


def test_features_are_numpys_in_float64():
    network, params = make(**{'model.direct': True})
    contexts = jnp.asarray(np.random.default_rng(0).integers(0, V, (7, N)))
    features, carry = FEATURES_OF(network, params, contexts)
    _, probs_BxNxS = jax.jit(network.body.choose)(params['C_VxM'][contexts])
    assert carry is None and np.ptp(probs_BxNxS) > 0.5
    np.testing.assert_allclose(probs_BxNxS.sum(axis=2), 1, rtol=1e-6)
    for b, row in enumerate(np.asarray(contexts)):
        e_NxM, pi_NxS = numpy_features(np.asarray(params['C_VxM'])[row], S)
        np.testing.assert_allclose(probs_BxNxS[b], pi_NxS, rtol=1e-4, atol=1e-6)
        x_P = e_NxM[::-1].reshape(-1)
        np.testing.assert_allclose(features['W_VxP'][b], x_P, rtol=1e-4, atol=1e-6)
        a_K = np.tanh(np.asarray(params['d_K']) + np.asarray(params['H_KxP'], np.float64) @ x_P)
        np.testing.assert_allclose(features['U_VxK'][b], a_K, rtol=1e-4, atol=1e-6)


def test_gradients_are_numpys_in_float64():
    network, _ = make()
    rows = np.random.default_rng(1).normal(size=(N, (2 * S - 1) * M))
    weights_NxM = np.random.default_rng(2).normal(size=(N, M))

    def mixed(rows_NxR):
        vectors_BxNxSxM, probs_BxNxS = network.body.choose(rows_NxR[None])
        return jnp.sum(weights_NxM * jnp.einsum('bnsm,bns->bnm', vectors_BxNxSxM, probs_BxNxS)[0])

    grads, expected = jax.jit(jax.grad(mixed))(jnp.asarray(rows, jnp.float32)), np.zeros_like(rows)
    for i in np.ndindex(*rows.shape):
        step = np.zeros_like(rows)
        step[i] = 1e-5
        high, low = (np.sum(weights_NxM * numpy_features(rows + sign * step, S)[0]) for sign in (1, -1))
        expected[i] = (high - low) / 2e-5
    np.testing.assert_allclose(grads, expected, rtol=1e-3, atol=1e-4)
    assert np.abs(expected).min(axis=0).max() > 1e-3
    check_grads(mixed, (jnp.asarray(rows, jnp.float32),), order=1, modes=('rev',), atol=2e-2, rtol=2e-2)


def test_one_sense_is_the_papers_network(tmp_path):
    changes = {**SPARSE, 'output.kind': 'nce'}
    expected, _, _ = train(small_settings(changes), tmp_path / 'nplm')
    actual, _, _ = train(small_settings({**changes, **SENSES, 'model.number': 1}), tmp_path / 'senses')
    assert_close(actual, expected, rtol=1e-4, atol=1e-6)


def test_words_with_equal_senses_are_words_with_one():
    network, params = make()
    vectors_VxM = params['C_VxM'][:, :M]
    gates_VxG = params['C_VxM'][:, S * M :]
    equal = params | {'C_VxM': jnp.concatenate([*[vectors_VxM] * S, gates_VxG], axis=1)}
    plain, contexts = make_network(V), jnp.asarray(np.random.default_rng(3).integers(0, V, (5, N)))
    expected, _ = FEATURES_OF(plain, params | {'C_VxM': vectors_VxM}, contexts)
    actual, _ = FEATURES_OF(network, equal, contexts)
    for name in expected:
        np.testing.assert_allclose(actual[name], expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('kind', ['full', 'two_level'])
def test_probabilities_sum_to_one_and_it_generates(kind):
    model = make_model(V, {**SPARSE, **SENSES, 'output.kind': kind})
    log_p_BxV = model.next_word(np.random.default_rng(4).integers(0, V, (7, N)))
    np.testing.assert_allclose(np.exp(log_p_BxV.astype(np.float64)).sum(axis=1), 1, atol=1e-5)
    ids_BxT = generation.sample(model, np.array([1, 2, 3, 4]), words=5, samples=3)
    assert ids_BxT.shape == (3, 5) and (ids_BxT < V).all()
    words_T = np.random.default_rng(5).integers(1, V, 20)
    log_p_T = model.score(words_T, Span(3, 20))
    np.testing.assert_allclose(log_p_T[0], model.next_word(words_T[None, :3])[0, words_T[3]], atol=1e-5)


def test_stopped_and_resumed_is_bit_for_bit_the_same(tmp_path):
    check_resumed(small_settings({**SPARSE, **SENSES, 'output.kind': 'nce'}), tmp_path)


def test_a_context_of_one_word_cannot_choose():
    with refuses('model.n'):
        make_network(V, {**SENSES, 'model.n': 2})
    assert make_network(V, {**SENSES, 'model.n': 2, 'model.number': 1}).body.reach == 1


@pytest.mark.eight_devices
@pytest.mark.parametrize(
    'kind,data,model,mode', [('full', 2, 4, 'shard_map'), ('nce', 4, 2, 'shard_map'), ('nce', 8, 1, 'pmap')]
)
def test_eight_devices_train_as_one(kind, data, model, mode):
    changes = {**SPARSE, **SENSES, 'output.kind': kind, 'train.batch_size': 16, 'optimizer.learning_rate': 0.1}
    trained = check_eight_devices(changes, data, model, mode)
    assert evaluate(trained, DATA.tokens_T, DATA.valid).perplexity < 100
