"""Tests the energy network: its equation in float64, its gradients, and rejected settings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DATA, ENERGY, check_resumed, features_of, make_network, refuses, small_settings
from jax.test_util import check_grads

from experiments.paper.section5.plugins import energy
from nplm_jax.config import settings as config_lib
from nplm_jax.inference.generation import sample
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.runs.experiment import load_settings

V, N, M, K = 23, 3, 5, 7
CHANGES = {
    'model.family': ENERGY,
    'model.direct': False,
    'model.n': N + 1,
    'model.m': M,
    'model.h': K,
    'output.kind': 'nce',
    'output.samples': 9,
}


@pytest.fixture
def made():
    network = make_network(V, CHANGES)
    return network, jax.tree.map(lambda x: 3 * x + 0.1, network.init(jax.random.key(0), np.linspace(-1, 1, V)))


def reference(params, contexts_BxN):
    """Returns the float64 log P of all words, computed by loops over examples and words."""
    p = {name: np.asarray(value, np.float64) for name, value in params.items()}
    log_p_BxV = np.empty((len(contexts_BxN), V))
    for b, context in enumerate(contexts_BxN):
        x = np.concatenate([p['C_VxM'][w] for w in context[::-1]])  # the most recent word first
        for w in range(V):
            hidden = np.tanh(p['d_K'] + p['H_KxP'] @ x + p['D_KxM'] @ p['C_VxM'][w])
            log_p_BxV[b, w] = p['b_V'][w] + p['v_K'] @ hidden
        log_p_BxV[b] -= np.log(np.exp(log_p_BxV[b]).sum())
    return log_p_BxV


def contexts(count=11):
    return np.random.default_rng(0).integers(0, V, (count, N)).astype(np.int32)


def test_every_words_probability_is_that_of_the_equation(made):
    network, params = made
    log_p_BxV = NeuralLanguageModel(network, params).next_word(contexts())
    np.testing.assert_allclose(log_p_BxV, reference(params, contexts()), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(np.exp(np.float64(log_p_BxV)).sum(1), 1, atol=1e-6)


@pytest.mark.parametrize('block', [V, 3 * V, 5 * V + 1])
def test_scores_do_not_depend_on_the_size_of_a_block(made, block, monkeypatch):
    network, params = made
    features, _ = features_of(network, params, contexts())
    expected = energy.ENERGY.scores(params, features)
    monkeypatch.setattr(energy, 'BLOCK', block)
    np.testing.assert_allclose(energy.ENERGY.scores(params, features), expected, rtol=1e-6, atol=1e-6)


def test_gathered_scores_are_those_of_the_same_words_among_all(made):
    network, params = made
    features, _ = features_of(network, params, contexts())
    rows_BxL = np.random.default_rng(1).integers(0, V, (11, 2))
    per_example = {name: params[name][rows_BxL] for name in ('C_VxM', 'b_V')}
    y_VxB = energy.ENERGY.scores(params, features)
    expected = np.take_along_axis(np.asarray(y_VxB).T, rows_BxL, axis=1)
    np.testing.assert_allclose(energy.ENERGY.gathered_scores(params, per_example, features), expected, rtol=1e-5)


def test_gradients_of_the_sum_of_tanh():
    random = np.random.default_rng(2)
    arguments = [jnp.asarray(random.normal(size=shape), jnp.float32) for shape in ((K,), (V, K), (11, K))]
    check_grads(lambda *x: jnp.sin(energy.sum_of_tanh(*x)), arguments, order=1, modes=['rev'], rtol=2e-2, atol=2e-2)
    grads = jax.jit(jax.grad(lambda *x: jnp.sin(energy.sum_of_tanh(*x)).sum(), (0, 1, 2)))(*arguments)

    def plain(v_K, c_RxK, a_BxK):
        return jnp.sin(jnp.tanh(c_RxK[:, None, :] + a_BxK[None, :, :]) @ v_K).sum()

    for actual, expected in zip(grads, jax.jit(jax.grad(plain, (0, 1, 2)))(*arguments)):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


def test_a_resumed_training_has_the_bits_of_an_unbroken_one(tmp_path):
    best = check_resumed(small_settings(CHANGES), tmp_path)
    model = NeuralLanguageModel(make_network(len(DATA.vocabulary), CHANGES), best)
    assert sample(model, np.array([3, 4]), words=5, samples=2).shape[0] == 2


def test_a_network_without_hidden_layer_or_with_the_exact_loss_is_refused():
    def load(**changes):
        default = {'model.precision': 'auto', 'output.precision': 'auto'}
        return load_settings(config_lib.to_dict(small_settings({**CHANGES, **default, **changes})))

    load()
    for key, value in (('model.h', 0), ('output.kind', 'full'), ('output.kind', 'two_level')):
        further = {'output.samples': 1000} if key == 'output.kind' else {}
        with refuses(key):
            load(**{key: value}, **further)
