"""Tests the two-level softmax: equal results from every method, and the gradients of the plain formula."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    features_of,
    loss_of,
    make_batch,
    make_network,
    others_nightly,
    refuses,
    small_settings,
    start_training,
)

from nplm_jax.data import vocabulary
from nplm_jax.data.stream import Span
from nplm_jax.models import nplm
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.training import step

V = 31
# Shortlist, maximum classes, actual classes: equal sizes, an incomplete last class, one class, one class per word.
LAYOUTS = [(7, 4, 4), (10, 4, 4), (0, 1, 1), (5, 26, 26)]
CONTEXTS = jnp.asarray(np.random.default_rng(0).integers(0, V, (9, 3)), jnp.int32)
TARGETS = jnp.asarray([0, 6, 7, 30, 12, 29, 5, 5, 18], jnp.int32)
FEATURES_OF = jax.jit(features_of, static_argnums=0)


def changes_of(num_shortlist, max_classes, direct=True, h=5):
    output = {'output.kind': 'two_level', 'output.num_shortlist': num_shortlist, 'output.classes': max_classes}
    return {**output, 'model.direct': direct, 'model.h': h, 'model.dropout': 0.0}


def make(num_shortlist, max_classes, direct=True, h=5):
    network = make_network(V, changes_of(num_shortlist, max_classes, direct, h))
    return network, network.init(jax.random.key(3), np.linspace(-1, -3, V).astype(np.float32))


def plain(network, params, contexts_BxN):
    """Returns log P of all words, computed class by class, B x V."""
    y_BxV, features, layer = (
        nplm.logits({name: array for name, array in params.items() if name != 'classes'}, contexts_BxN),
        features_of(network, params, contexts_BxN)[0],
        network.output,
    )
    H, L = layer.num_shortlist, layer.class_size
    classes = params['classes']
    y_BxG = classes['b_G'][None, :] + sum(
        inputs @ classes[{'U_VxK': 'U_GxK', 'W_VxP': 'W_GxP'}[name]].T for name, inputs in features.items()
    )
    log_top = jax.nn.log_softmax(jnp.concatenate([y_BxV[:, :H], y_BxG], axis=1))
    log_p = [log_top[:, :H]]
    for g in range(len(classes['b_G'])):
        words = y_BxV[:, H + g * L : min(H + (g + 1) * L, V)]
        assert words.shape[1]
        log_p.append(jax.nn.log_softmax(words) + log_top[:, H + g, None])
    return jnp.concatenate(log_p, axis=1)


QUICK = 7, 5  # a class per few words, and a class per word
SHAPES = [(*layout, True, 5) for layout in LAYOUTS] + [(7, 4, 4, False, 5), (7, 4, 4, True, 0)]


@pytest.mark.parametrize('num_shortlist,max_classes,made,direct,h', others_nightly(SHAPES, QUICK))
def test_it_is_one_distribution_and_score_agrees_with_next_word(num_shortlist, max_classes, made, direct, h):
    network, params = make(num_shortlist, max_classes, direct, h)
    assert len(params['classes']['b_G']) == network.output.num_classes == made
    of_classes = made * (1 + h + (9 if direct else 0))
    assert network.num_parameters() == nplm.num_parameters(4, 3, h, direct, V) + of_classes
    features = FEATURES_OF(network, params, CONTEXTS)[0]
    log_p_BxV = jax.jit(network.output.log_probabilities)(params, features)
    np.testing.assert_allclose(np.exp(np.asarray(log_p_BxV, np.float64)).sum(1), 1, atol=1e-6)
    np.testing.assert_allclose(log_p_BxV, jax.jit(functools.partial(plain, network))(params, CONTEXTS), atol=1e-5)
    nll_B = jax.jit(network.output.nll)(params, features, TARGETS)
    np.testing.assert_allclose(nll_B, -log_p_BxV[jnp.arange(9), TARGETS], atol=1e-5)
    tokens_T = np.asarray(TARGETS)
    model = NeuralLanguageModel(network, params)
    log_p_T = model.score(tokens_T, Span(3, 9))
    next_word = model.next_word(np.stack([tokens_T[t - 3 : t] for t in range(3, 9)]))
    np.testing.assert_allclose(log_p_T, next_word[np.arange(6), tokens_T[3:9]], atol=1e-5)


@pytest.mark.parametrize('num_shortlist,max_classes,made', others_nightly(LAYOUTS, QUICK))
def test_an_update_is_that_of_the_plain_formulas_gradient(num_shortlist, max_classes, made):
    network, params = make(num_shortlist, max_classes)

    def nll(params):
        return -jnp.mean(jnp.take_along_axis(plain(network, params, CONTEXTS), TARGETS[:, None], axis=1))

    expected, grads = jax.jit(jax.value_and_grad(nll))(params)
    sgd = {'optimizer.decay': 0.0, 'optimizer.schedule': 'constant', 'train.batch_size': 9}
    settings = small_settings({**changes_of(num_shortlist, max_classes), **sgd})
    program, state, inputs = start_training(settings, V, 9, params)
    assert program.scatters_updates
    train_step = jax.jit(step.train_step, static_argnames='program')
    state, before = train_step(program, state, make_batch(CONTEXTS, TARGETS))
    assert float(before) == pytest.approx(float(expected), rel=1e-5)
    for ours, start, grad in zip(*map(jax.tree.leaves, (state.params, params, grads)), strict=True):
        np.testing.assert_allclose(ours, start - 0.5 * grad, rtol=1e-5, atol=1e-6)


def test_scores_of_ten_thousand_stay_finite():
    network, params = make(10, 8)
    params |= {'b_V': 1e4 * params['b_V'], 'classes': params['classes'] | {'b_G': 1e4 * params['classes']['b_G']}}
    features = FEATURES_OF(network, params, CONTEXTS)[0]
    log_p_BxV = jax.jit(network.output.log_probabilities)(params, features)
    assert bool(jnp.isfinite(log_p_BxV).all())
    np.testing.assert_allclose(
        jax.jit(network.output.nll)(params, features, TARGETS), -log_p_BxV[jnp.arange(9), TARGETS]
    )
    grads = jax.jit(jax.grad(lambda params: loss_of(network, params, make_batch(CONTEXTS, TARGETS))[0]))(params)
    assert all(bool(jnp.isfinite(grad).all()) for grad in jax.tree.leaves(grads))


def test_the_first_biases_make_the_unigram_distribution():
    network, params = make(7, 4)
    quiet = jax.tree.map(jnp.zeros_like, params) | {'b_V': params['b_V']}
    quiet['classes']['b_G'] = params['classes']['b_G']
    expected = jax.nn.log_softmax(params['b_V'])
    log_p_BxV = network.output.log_probabilities(quiet, features_of(network, quiet, CONTEXTS)[0])
    np.testing.assert_allclose(log_p_BxV[0], expected, atol=1e-5)


@pytest.mark.parametrize('key,value', [('output.num_shortlist', V), ('output.classes', V - 6)])
def test_a_layout_that_the_vocabulary_cannot_fill_is_refused(key, value):
    settings = small_settings({**changes_of(7, 4), key: value})
    with refuses(key):
        settings.output.over(vocabulary.numbered(V))
