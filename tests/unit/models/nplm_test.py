"""Tests the paper's network: equation 1 by hand and by a loop, the order of the context, and errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import features_of, make_network, refuses

from nplm_jax.models import nplm
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.utils.errors import BadInput

V = 31
SHAPES = [(4, 3, 5, True), (4, 3, 5, False), (3, 7, 0, True), (2, 1, 1, False)]  # n, m, h, direct
CONTEXTS = jnp.asarray(np.random.default_rng(0).integers(0, V, (7, 3)), jnp.int32)


def make(n, m, h, direct, bias_V=None, **changes):
    network = make_network(V, {'model.n': n, 'model.m': m, 'model.h': h, 'model.direct': direct, **changes})
    return network, network.init(jax.random.key(3), bias_V)


def log_probabilities(network, params, contexts_BxN):
    return network.output.log_probabilities(params, features_of(network, params, contexts_BxN)[0])


@pytest.mark.parametrize('n,m,h,direct', SHAPES)
def test_the_number_of_parameters_is_the_papers_formula(n, m, h, direct):
    network, params = make(n, m, h, direct)
    size = sum(leaf.size for leaf in params.values())
    assert size == network.num_parameters() == nplm.num_parameters(n, m, h, direct, V)
    if direct:  # section 2: |V|(1 + nm + h) + h(1 + (n-1)m)
        assert size == V * (1 + n * m + h) + h * (1 + (n - 1) * m)


def test_contexts_are_in_reading_order_and_x_begins_with_the_most_recent_word():
    """The network has n = 3, one feature per word, and one hidden unit that reads only the most recent word."""
    params = {
        'C_VxM': jnp.array([[0.0], [1.0], [10.0]]),
        'H_KxP': jnp.array([[0.1, 0.0]]),
        'd_K': jnp.array([0.5]),
        'U_VxK': jnp.array([[0.0], [0.0], [2.0]]),
        'W_VxP': jnp.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]),
        'b_V': jnp.array([100.0, 200.0, 300.0]),
    }
    y_BxV = nplm.logits(params, jnp.array([[1, 2], [2, 1]]))  # the words 1, 2 and then the words 2, 1
    expected = [[110, 201, 300 + 2 * np.tanh(1.5)], [101, 210, 300 + 2 * np.tanh(0.6)]]
    np.testing.assert_allclose(y_BxV, expected, rtol=1e-6)
    network = make_network(3, {'model.n': 3, 'model.m': 1, 'model.h': 1})
    log_p_BxV = NeuralLanguageModel(network, params).next_word(np.array([[1, 2], [2, 1]]))
    np.testing.assert_allclose(log_p_BxV, jax.nn.log_softmax(np.array(expected), axis=1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('n,m,h,direct', SHAPES)
def test_probabilities_sum_to_one(n, m, h, direct):
    log_p_BxV = log_probabilities(*make(n, m, h, direct), CONTEXTS[:, : n - 1])
    assert log_p_BxV.shape == (7, V)
    np.testing.assert_allclose(np.exp(np.asarray(log_p_BxV, np.float64)).sum(1), 1, atol=1e-6)


def test_every_context_word_matters_and_its_place_too():
    _, params = make(4, 3, 5, True)
    base = nplm.logits(params, CONTEXTS)
    for k in range(3):
        changed = nplm.logits(params, CONTEXTS.at[:, k].set((CONTEXTS[:, k] + 1) % V))
        assert float(jnp.abs(changed - base).max(1).min()) > 1e-4
    assert float(jnp.abs(nplm.logits(params, CONTEXTS[:, ::-1]) - base).max()) > 1e-3


OTHERS = {
    'two_level': {'output.kind': 'two_level', 'output.num_shortlist': 7, 'output.classes': 4},
    'gru': {'model.family': 'gru', 'model.direct': False, 'model.bptt_length': 1},
    'residual': {'model.family': 'residual', 'model.direct': False, 'model.bptt_length': 1},
}


@pytest.mark.parametrize('name', OTHERS)
def test_equation_1_refuses_the_parameters_of_another_network(name):
    network = make_network(V, OTHERS[name])
    params = jax.eval_shape(lambda: network.init(jax.random.key(0)))
    with pytest.raises(BadInput) as caught:
        jax.eval_shape(nplm.logits, params, CONTEXTS)
    assert caught.value.key == 'params' and caught.value.value == sorted(params)


@pytest.mark.parametrize('missing', ['C_VxM', 'b_V', 'H_KxP', 'd_K', 'U_VxK'])
def test_equation_1_refuses_parameters_without_one_of_its_arrays(missing):
    params = make(4, 3, 5, True)[1]
    with pytest.raises(BadInput) as caught:
        nplm.logits({name: params[name] for name in params if name != missing}, CONTEXTS)
    assert caught.value.key == 'params' and missing not in caught.value.value


def test_equation_1_refuses_a_network_whose_output_does_not_depend_on_the_context():
    params = make(4, 3, 5, True)[1]
    with refuses('params'):
        nplm.logits({name: params[name] for name in ('C_VxM', 'b_V')}, CONTEXTS)


def test_b_starts_from_the_unigram_bias():
    bias_V = np.linspace(-3, 0, V).astype(np.float32)
    assert make(3, 2, 4, False, bias_V)[1]['b_V'].tolist() == bias_V.tolist()
    assert not make(3, 2, 4, False)[1]['b_V'].any()


def test_dropout_needs_a_key_and_zeroes_features_and_hidden_units():
    network, params = make(4, 3, 5, True, **{'model.dropout': 0.5})
    kept = features_of(network, params, CONTEXTS)[0]
    without = features_of(make(4, 3, 5, True, **{'model.dropout': 0.0})[0], params, CONTEXTS, key=jax.random.key(1))[0]
    assert all((kept[name] == without[name]).all() for name in kept)
    params |= {'H_KxP': jnp.zeros((5, 9)), 'd_K': jnp.ones(5)}
    dropped = features_of(network, params, CONTEXTS, key=jax.random.key(1))[0]
    assert dropped.keys() == {'U_VxK', 'W_VxP'}
    for values_BxD in dropped.values():
        assert 0 < float((values_BxD == 0).mean()) < 1


def test_next_word_takes_contexts_of_any_length_in_reading_order():
    network, params = make(4, 3, 5, True)
    model, contexts = NeuralLanguageModel(network, params), np.asarray(CONTEXTS)
    expected = log_probabilities(network, params, CONTEXTS)
    np.testing.assert_allclose(model.next_word(contexts), expected, rtol=1e-6)  # jit may round differently
    longer = np.concatenate([np.full((7, 2), 9), contexts], axis=1)
    np.testing.assert_array_equal(model.next_word(longer), model.next_word(contexts))
    padded = np.concatenate([np.zeros((7, 2), int), contexts[:, 2:]], axis=1)
    np.testing.assert_array_equal(model.next_word(contexts[:, 2:]), model.next_word(padded))
    empty = np.zeros((7, 0), int)
    np.testing.assert_array_equal(model.next_word(empty), model.next_word(np.zeros((7, 3), int)))


@pytest.mark.parametrize('contexts', [[1, 2, 3], 4, [[[1, 2, 3]]]])
def test_next_word_refuses_what_is_no_matrix(contexts):
    model = NeuralLanguageModel(*make(4, 3, 5, True))
    with refuses('contexts'):
        model.next_word(np.array(contexts))


@pytest.mark.parametrize('contexts', [[[1, 2, V]], [[-1, 1, 2]]])
def test_logits_refuse_ids_outside_the_vocabulary(contexts):
    _, params = make(4, 3, 5, True)
    with refuses('contexts'):
        nplm.logits(params, jnp.array(contexts))
    assert jax.jit(nplm.logits)(params, CONTEXTS).shape == (7, V)
