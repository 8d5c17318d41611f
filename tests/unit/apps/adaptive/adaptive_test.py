"""Tests that adaptive models predict each word before they read it, according to the documented formulas."""

import contextlib
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import features_of, refuses

from nplm_jax.apps.adaptive import adaptive_model, dynamic_evaluation
from nplm_jax.apps.adaptive.neural_cache import NeuralCache
from nplm_jax.apps.adaptive.ngram_cache import NgramCache
from nplm_jax.data import batches
from nplm_jax.data.stream import Span
from nplm_jax.models import mixture
from tests.unit.apps.adaptive.adaptive_models import FAMILIES, MODELS, WORDS, V, dynamic, network_model, streams


@pytest.fixture(params=MODELS, scope='module')
def model(request):
    return MODELS[request.param]()


def test_what_was_read_changes_what_is_predicted(model):
    other = WORDS.copy()
    other[200:206] = (other[200:206] + 1) % V
    p_T, other_p_T = (np.exp(model.score(words, Span(100, 300))) for words in (WORDS, other))
    assert np.abs(p_T - other_p_T)[106:].max() > 1e-5


def test_each_line_starts_anew(model):
    lines = [WORDS[:30], WORDS[:30], WORDS[5:9]]
    first, second, _ = model.score_lines(lines)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize('name', ['neural cache of an lstm', 'dynamic lstm'])
def test_a_long_text_is_scored_in_parts_as_at_once_and_shows_the_progress(name, monkeypatch):
    model, updates = MODELS[name](), []
    bar = SimpleNamespace(update=updates.append)
    monkeypatch.setattr(adaptive_model, 'progress_bar', lambda total, *_: contextlib.nullcontext(bar))
    expected = model.score(WORDS, Span(3, 400))
    monkeypatch.setattr(adaptive_model, '_PART', 60)
    np.testing.assert_array_equal(model.score(WORDS, Span(3, 400)), expected)
    assert len(updates) > 2 and sum(updates[1:]) == updates[0]


def test_a_mixture_with_a_cache_is_a_language_model():
    mixed = mixture.equal([network_model('lstm'), MODELS['neural cache of an lstm']()])
    assert np.isfinite(mixed.score(WORDS, Span(50, 60))).all()


def test_the_ngram_cache_counts_the_remembered_words_by_hand():
    cache = NgramCache(5, 2, 4, 1.0)
    words = np.array([1, 2, 1, 2, 3, 1], np.int32)
    # Before the last word: 2 1 2 3, where nothing follows 3; P_1(1) = (1 + 1/5) / 5.
    assert np.exp(cache.score(words, Span(5, 6)))[0] == pytest.approx(1.2 / 5)
    # Before the word 3: 1 2 1 2; 1 followed 2 once, and 3 never.
    assert np.exp(cache.score(words, Span(4, 5)))[0] == pytest.approx((0.2 / 5) / 2)


@pytest.mark.parametrize('family', FAMILIES)
def test_the_neural_cache_is_its_formula(family):
    model = network_model(family)
    cache, words = NeuralCache(model, 40, 3.0), WORDS[:100]
    contexts, _ = batches.examples(words, jnp.arange(100), model.network.body.lookback + 1)
    features, _ = jax.jit(features_of, static_argnums=0)(model.network, model.params, streams(model.network, contexts))
    features = np.concatenate(list(features.values()), 1)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    expected = []
    for t in range(60, 100):
        weights = np.exp(3 * features[t - 40 : t] @ features[t])
        with np.errstate(divide='ignore'):
            expected.append(np.log(weights[words[t - 40 : t] == words[t]].sum() / weights.sum()))
    np.testing.assert_allclose(cache.score(words, Span(60, 100)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('family', FAMILIES)
def test_without_a_rate_it_is_the_trained_network(family):
    still = dynamic(family, rate=0, decay=0)
    for span in (Span(3, 40), Span(103, 371)):
        np.testing.assert_allclose(still.score(WORDS, span), still.model.score(WORDS, span), rtol=1e-4, atol=1e-5)


def test_the_mean_squares_of_gradients():
    model = network_model('window')
    found = dynamic_evaluation.root_mean_square_gradients(model, WORDS, Span(0, 200), 5, 32)

    def loss(params, positions):
        contexts, targets = batches.examples(WORDS, positions, model.network.body.lookback + 1)
        features, _ = features_of(model.network, params, contexts)
        return -model.network.output.log_probabilities(params, features)[jnp.arange(5), targets].mean()

    starts = [stretch + 5 * i for stretch in (0, 60) for i in range(16)]
    gradient = jax.jit(jax.grad(loss))
    grads = [gradient(model.params, start + jnp.arange(5)) for start in starts]
    expected = jax.tree.map(lambda *g: np.sqrt(np.mean(np.square(g), axis=0)), *grads)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), found, expected)


def test_the_gradients_of_a_short_training_text_do_not_depend_on_the_words_after_it():
    model, changed = network_model('window'), np.append(WORDS[:37], (WORDS[37:] + 1) % V)
    found = [
        dynamic_evaluation.root_mean_square_gradients(model, words, Span(0, 37), 5, 32) for words in (WORDS, changed)
    ]
    jax.tree.map(np.testing.assert_array_equal, *found)


def test_the_ngram_cache_scores_slices_and_is_read_word_by_word():
    cache, words = NgramCache(V, 2, 50, 1.0), WORDS[:9]
    log_p_T = cache.score(words)
    for span in (slice(0, 3), slice(2, None), slice(-4, -1), slice(7, 7)):
        np.testing.assert_array_equal(cache.score(words, span), log_p_T[span])
    state = cache.prefill(words[None, :3])
    for t in range(3, 9):
        assert cache.predict(state)[0, words[t]] == pytest.approx(log_p_T[t], abs=1e-5)
        state = cache.advance(state, words[t : t + 1])


@pytest.mark.parametrize('ids', [[1, 1.5], ['a', 'b'], [1, V], [-1, 2]])
def test_only_ids_of_words_are_scored(ids):
    cache, ids = NgramCache(V, 1, 9, 1.0), np.array(ids)
    calls = {'tokens': cache.score, 'lines': lambda ids: cache.score_lines([ids])}
    calls['contexts'] = lambda ids: cache.next_word(ids[None])
    for key, call in calls.items():
        with refuses(key):
            call(ids)
