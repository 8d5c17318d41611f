"""Tests mixtures of back-off models that are stored as a single back-off model."""

import itertools

import numpy as np
import pytest
from helpers import refuses

from nplm_jax.data.stream import Span
from nplm_jax.models import mixture
from nplm_jax.ngram import kneser_ney, pruning, static_mixture
from nplm_jax.ngram.backoff import BackoffModel
from nplm_jax.ngram.counts import NgramTable, count
from nplm_jax.ngram.kept_words import keep_words
from nplm_jax.ngram.normalization import ngram_words, normalize
from nplm_jax.ngram.quantization import quantize
from nplm_jax.ngram.scratch import Scratch

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')
TOKENS = np.minimum(np.random.default_rng(1).zipf(1.4, 4000), 49).astype(np.int32)
V = 50


def fit(start=0, stop=3500, n=4, size=V, **options):
    return kneser_ney.fit_modified(count(np.minimum(TOKENS, size - 1), Span(start, stop), n, size), **options)


def without_suffixes(n=3, size=V):
    """Returns a model with trigrams whose last two words are not among its bigrams."""
    model = fit(300, 900, n, size)
    is_kept = np.random.default_rng(5).random(model.table.size(2)) < 0.5
    smaller = pruning.drop(model, [np.ones(size, bool), is_kept, is_kept[model.table.prefixes(3)]])
    words = ngram_words(smaller.table, 3, np.arange(smaller.table.size(3)))
    assert (smaller.table.nodes(words[:, 1:], 2)[2][:, -1] < 0).sum() > 5
    return normalize(smaller.table, smaller.log_p, Scratch())


def without_trigrams(size=V):
    """Returns a model whose third order is empty."""
    model = fit(300, 900, 3, size)
    smaller = pruning.drop(
        model, [*(np.ones(model.table.size(k), bool) for k in (1, 2)), np.zeros(model.table.size(3))]
    )
    return normalize(smaller.table, smaller.log_p, Scratch())


PAIRS = {
    'of two texts': lambda size: [fit(0, 1000, size=size), fit(1000, 3000, size=size)],
    'of different orders': lambda size: [fit(0, 300, 2, size), fit(200, 600, 4, size), fit(500, 2000, 3, size)],
    'with missing suffixes': lambda size: [without_suffixes(size=size), fit(0, 200, 3, size)],
    'with an empty order': lambda size: [without_trigrams(size), fit(0, 200, 3, size)],
    'quantized and back-off': lambda size: [
        quantize(fit(size=size), 8),
        kneser_ney.fit_backoff(count(np.minimum(TOKENS, size - 1), Span(9, 700), 3, size)),
    ],
}
WEIGHTS = {2: [0.3, 0.7], 3: [0.2, 0.3, 0.5]}


class Dictionaries:
    """A back-off model with two dictionaries, log p of n-grams and log b of contexts, that scores word by word."""

    def __init__(self, p, b, size):
        self.p, self.b, self.size = p, b, size

    @classmethod
    def of(cls, model: BackoffModel):
        p, b = {}, {}
        for k in range(1, model.n + 1):
            for node, words in enumerate(ngram_words(model.table, k, np.arange(model.table.size(k))).tolist()):
                p[tuple(words)] = float(np.exp(model.log_p[k - 1][np.array([node])][0]))
                if k < model.n:
                    b[tuple(words)] = float(np.exp(model.log_b[k - 1][node]))
        return cls(p, b, model.table.vocabulary_size)

    def __call__(self, ngram):
        if ngram in self.p:
            return self.p[ngram]
        return self.b.get(ngram[:-1], 1.0) * self(ngram[1:])

    @classmethod
    def mixed(cls, models, weights):
        size, ngrams = models[0].size, sorted({ngram for model in models for ngram in model.p}, key=len)
        mixed = cls({}, {}, size)
        for ngram in ngrams:
            mixed.p[ngram] = sum(weight * model(ngram) for weight, model in zip(weights, models))
        for context in sorted({ngram[:-1] for ngram in ngrams if len(ngram) > 1}, key=len):
            followers = [word for word in range(size) if (*context, word) in mixed.p]
            left = 1 - sum(mixed.p[*context, word] for word in followers)
            unseen = 1 - sum(mixed((*context[1:], word)) for word in followers)
            mixed.b[context] = left / unseen if len(followers) < size else 0.0
        return mixed


@pytest.mark.parametrize('name', PAIRS)
def test_it_is_what_dictionaries_of_a_tiny_vocabulary_give(name):
    size = 6
    models = PAIRS[name](size)
    found = static_mixture.interpolate(models, WEIGHTS[len(models)])
    expected = Dictionaries.mixed([Dictionaries.of(model) for model in models], WEIGHTS[len(models)])
    assert sum(found.table.size(k) for k in range(1, found.n + 1)) == len(expected.p)
    contexts_BxN = np.array(list(itertools.product(range(size), repeat=found.n - 1)))
    p_BxV = [[expected((*context, word)) for word in range(size)] for context in contexts_BxN.tolist()]
    np.testing.assert_allclose(np.exp(found.next_word(contexts_BxN)), p_BxV, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize('name', PAIRS)
def test_it_sums_to_one_after_every_context(name):
    models = PAIRS[name](V)
    model = static_mixture.interpolate(models, WEIGHTS[len(models)])
    contexts_BxN = np.random.default_rng(0).integers(0, V, (400, 3))
    contexts_BxN[:300] = np.lib.stride_tricks.sliding_window_view(TOKENS, 3)[:300]
    p_BxV = np.exp(model.next_word(contexts_BxN).astype(np.float64))
    np.testing.assert_allclose(p_BxV.sum(1), 1, atol=1e-6)


@pytest.mark.parametrize('name', PAIRS)
def test_it_is_the_mixture_for_the_ngrams_of_the_models_and_only_for_them(name):
    models = PAIRS[name](V)
    model = static_mixture.interpolate(models, WEIGHTS[len(models)])
    dynamic = mixture.Mixture(models, np.array([WEIGHTS[len(models)]]), mixture.ContextBins())
    span = Span(10, 4000)
    same = np.isclose(model.score(TOKENS, span), dynamic.score(TOKENS, span), rtol=0, atol=1e-5)
    is_ngram = model.matched_lengths(TOKENS, span) == model.n
    assert same[is_ngram].all() and is_ngram.sum() > 100
    assert (~same[~is_ngram]).any()


def test_a_mixture_of_a_model_with_itself_is_the_model():
    model = fit()
    found = static_mixture.interpolate([model, model], [0.4, 0.6])
    for a, b in zip((*found.table.keys, *found.log_p, *found.log_b), (*model.table.keys, *model.log_p, *model.log_b)):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)


def test_back_off_weights_of_files_with_few_digits_keep_their_mass():
    p = np.log([0.1, 0.3, 0.4, 0.2])
    table = NgramTable(4, (np.arange(4), np.array([6, 11, 12, 13, 14])))
    log_p = [p, np.log([0.5, 1 - 8e-5, 0.3, 0.2, 0.2])]
    model = normalize(table, log_p, Scratch())
    rounded = BackoffModel(table, [p, (log_p[1] / np.log(10)).round(4) * np.log(10)], model.log_b)
    assert rounded.log_p[1][1] == 0  # 1 - 8e-5 is 0.0000 in the file
    mixed = static_mixture.interpolate([rounded, BackoffModel(table, [p], [])], [0.5, 0.5])
    p_mixed = 0.5 * np.exp(rounded.next_word(np.array([[2]]))) + 0.5 * np.exp(p)
    np.testing.assert_allclose(np.exp(mixed.next_word(np.array([[2]]))), p_mixed, rtol=1e-4)
    alone = static_mixture.interpolate([rounded, rounded], [0.5, 0.5])
    np.testing.assert_allclose(alone.log_b[0], model.log_b[0], atol=1e-12)


def test_models_whose_probabilities_do_not_sum_to_one_are_refused_unless_their_weight_is_zero():
    limited = keep_words(fit(), np.arange(V) != 7)
    words, *longer = limited.log_p
    for log_p in (limited.log_p, [words - np.logaddexp.reduce(words), *longer]):
        with refuses('--to'):
            static_mixture.interpolate([BackoffModel(limited.table, log_p, limited.log_b)], [1.0])
    static_mixture.interpolate([fit(size=V - 1), limited], [1.0, 0.0])
