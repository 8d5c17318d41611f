"""Tests the requirements for all count-based models, whatever their formulas."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import refuses

from nplm_jax.data.stream import RARE, Span
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.models import mixture
from nplm_jax.ngram import arpa, class_ngram, counts, interpolated, kneser_ney, unsmoothed

pytestmark = [pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')]

V = 13
TRAIN, VALID, TEST = Span(0, 400), Span(400, 480), Span(480, 560)


def stream(seed=1, size=560):
    """Returns words 0..10 with a skewed distribution; 11 and 12 do not occur in training."""
    rng = np.random.default_rng(seed)
    tokens_T = np.minimum(rng.geometric(0.25, size) - 1, 10).astype(np.int32)
    tokens_T[TRAIN.stop :: 7] = rng.integers(11, V, len(tokens_T[TRAIN.stop :: 7]))
    return tokens_T


def _mixed(tokens_T, train, valid, size):
    models = [
        interpolated.fit(tokens_T, train, valid, size),
        kneser_ney.fit_modified(counts.count(tokens_T, train, 4, size)),
        unsmoothed.add_delta(counts.count(tokens_T, train, 2, size), 0.5),
    ]
    return mixture.fit(models, tokens_T, valid, models[0].bins)


def _through_arpa(tokens_T, train, size, folder):
    vocabulary = Vocabulary((RARE, *(f'w{i}' for i in range(1, size))), (1,) * size)
    arpa.write(kneser_ney.fit_modified(counts.count(tokens_T, train, 3, size)), vocabulary, folder / 'model.arpa')
    return arpa.read(folder / 'model.arpa')[0]


def _classes(tokens_T, train, n, size):
    return class_ngram.ClassNgram.fit(tokens_T, train, n, class_ngram.exchange(tokens_T, train, min(4, size), size))


FAMILIES = {
    'maximum_likelihood_1': lambda t, tr, va, v, _: unsmoothed.add_delta(counts.count(t, tr, 1, v)),
    'maximum_likelihood_3': lambda t, tr, va, v, _: unsmoothed.add_delta(counts.count(t, tr, 3, v)),
    'add_delta_2': lambda t, tr, va, v, _: unsmoothed.add_delta(counts.count(t, tr, 2, v), 0.1),
    'unsmoothed_backoff_3': lambda t, tr, va, v, _: unsmoothed.unsmoothed_backoff(counts.count(t, tr, 3, v)),
    'interpolated': lambda t, tr, va, v, _: interpolated.fit(t, tr, va, v),
    'backoff_1': lambda t, tr, va, v, _: kneser_ney.fit_backoff(counts.count(t, tr, 1, v)),
    'backoff_3': lambda t, tr, va, v, _: kneser_ney.fit_backoff(counts.count(t, tr, 3, v)),
    'backoff_4_published': lambda t, tr, va, v, _: kneser_ney.fit_backoff(counts.count(t, tr, 4, v), min_count=1),
    'modified_1': lambda t, tr, va, v, _: kneser_ney.fit_modified(counts.count(t, tr, 1, v)),
    'modified_5': lambda t, tr, va, v, _: kneser_ney.fit_modified(counts.count(t, tr, 5, v)),
    'classes_3': lambda t, tr, va, v, _: _classes(t, tr, 3, v),
    'classes_1': lambda t, tr, va, v, _: _classes(t, tr, 1, v),
    'mixture': lambda t, tr, va, v, _: _mixed(t, tr, va, v),
    'arpa': lambda t, tr, va, v, folder: _through_arpa(t, tr, v, folder),
}
WITH_ZEROS = {'maximum_likelihood_1', 'maximum_likelihood_3', 'unsmoothed_backoff_3'}


@pytest.fixture(params=FAMILIES)
def family(request, tmp_path):
    def fit(tokens_T, train, valid, size):
        return FAMILIES[request.param](tokens_T, train, valid, size, tmp_path)

    fit.name = request.param
    return fit


def test_the_next_word_has_total_probability_one_after_any_context(family):
    tokens_T = stream()
    model = family(tokens_T, TRAIN, VALID, V)
    seen = tokens_T[:30].reshape(5, 6)
    half_seen, new_last = seen.copy(), seen.copy()
    half_seen[:, :-1] = 12
    new_last[:, -1] = 11
    for contexts in (seen, half_seen, new_last, np.full((1, 6), 12), np.zeros((1, 6), int), seen[:, -1:], seen[:, :0]):
        log_p = model.next_word(contexts)
        assert log_p.dtype == np.float32 and log_p.shape == (len(contexts), V)
        np.testing.assert_allclose(np.exp(log_p.astype(np.float64)).sum(1), 1, rtol=0, atol=1e-6)


def test_words_before_the_training_span_are_contexts_only(family):
    tokens_T = stream()
    tokens_T[:10] = 12, 11, 12, 12, 11, 11, 12, 11, 11, 12
    model = family(tokens_T, Span(10, 400), VALID, V)
    contexts = np.array([[12, 11, 11, 12], [11, 12, 11, 11], [1, 12, 12, 11], [11, 12, 0, 0]])
    total = np.exp(model.next_word(contexts).astype(np.float64)).sum(1)
    np.testing.assert_allclose(total, 1, rtol=0, atol=1e-6)


def test_only_the_unsmoothed_give_probability_zero(family):
    model = family(stream(), TRAIN, VALID, V)
    log_p = model.next_word(stream()[:30].reshape(5, 6))
    assert np.isneginf(log_p).any() == (family.name in WITH_ZEROS)


def test_score_is_the_next_word_looked_up(family):
    tokens_T = stream()
    model = family(tokens_T, TRAIN, VALID, V)
    padded = np.pad(tokens_T, (6, 0))
    for span in (Span(0, 40), TEST):
        contexts = np.stack([padded[t : t + 6] for t in range(span.start, span.stop)])
        expected = model.next_word(contexts)[np.arange(len(span)), tokens_T[span.start : span.stop]]
        scored = model.score(jnp.asarray(tokens_T), span)
        assert scored.dtype == np.float32
        np.testing.assert_allclose(scored, expected, rtol=1e-5, atol=1e-6)


def test_missing_context_words_are_the_rare_one(family):
    model = family(stream(), TRAIN, VALID, V)
    for short in ([[1, 2]], [[3]], [[]]):
        padded = np.pad(np.array(short, int), ((0, 0), (7 - len(short[0]), 0)))
        np.testing.assert_array_equal(model.next_word(np.array(short, int)), model.next_word(padded))


@pytest.mark.parametrize(
    'tokens, size',
    [([1] * 9, 2), ([0, 1] * 6, 2), ([1, 0], 3), ([2], 5), ([1, 2, 3, 4], 5)],
    ids=['one word', 'two words', 'shorter than n', 'a single word', 'all once'],
)
def test_degenerate_corpora_give_distributions_too(family, tokens, size):
    tokens_T = np.array(tokens, np.int32)
    everything = Span(0, len(tokens))
    model = family(tokens_T, everything, everything, size)
    total = np.exp(model.next_word(np.arange(size)[:, None]).astype(np.float64)).sum(1)
    np.testing.assert_allclose(total, 1, rtol=0, atol=1e-6)
    assert evaluate(model, tokens_T, everything).impossible == 0


def test_an_id_outside_the_vocabulary_is_refused(family):
    model = family(stream(), TRAIN, VALID, V)
    with pytest.raises(ValueError):
        model.next_word(np.array([[V]]))


@pytest.mark.parametrize('contexts', [np.array([1, 2]), np.array(3), np.zeros((2, 2, 2), int)])
def test_contexts_that_are_no_matrix_are_one_line(family, contexts):
    model = family(stream(), TRAIN, VALID, V)
    with refuses('contexts'):
        model.next_word(contexts)
