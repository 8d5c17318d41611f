"""Compares the interpolated trigram with a plain implementation of the paper's formulas."""

import collections
import math

import numpy as np
import pytest

from nplm_jax.data.stream import Span
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.ngram import counts, interpolated

V = 11
TRAIN, VALID, TEST = Span(0, 300), Span(300, 380), Span(380, 440)


def stream():
    rng = np.random.default_rng(3)
    tokens_T = np.minimum(rng.geometric(0.3, TEST.stop) - 1, 8)
    tokens_T[TRAIN.stop :: 9] = 10  # a word that does not occur in training
    return tokens_T


class Reference:
    """Implements section 4.1 of the paper for one word at a time."""

    def __init__(self, tokens, iterations):
        self.tokens = [0, 0, *map(int, tokens)]  # two rare words precede the stream
        self.unigrams, self.bigrams, self.trigrams = (collections.Counter() for _ in range(3))
        self.after_one, self.after_two = collections.Counter(), collections.Counter()
        for t in range(TRAIN.start, TRAIN.stop):
            u, v, w = self.tokens[t : t + 3]
            self.unigrams[w] += 1
            self.bigrams[v, w] += 1
            self.trigrams[u, v, w] += 1
            self.after_one[v] += 1
            self.after_two[u, v] += 1
        every = range(VALID.start, VALID.stop)
        shared = self.em(every, iterations)
        self.weights = collections.defaultdict(lambda: shared)
        for q in range(20):
            if members := [t for t in every if self.bin(t) == q]:
                self.weights[q] = self.em(members, iterations)

    def bin(self, t):
        frequency = self.after_two[tuple(self.tokens[t : t + 2])]
        return math.ceil(-math.log((1 + frequency) / len(TRAIN)))

    def components(self, t):
        u, v, w = self.tokens[t : t + 3]
        p1 = self.unigrams[w] / len(TRAIN)
        p2 = self.bigrams[v, w] / self.after_one[v] if self.after_one[v] else p1
        p3 = self.trigrams[u, v, w] / self.after_two[u, v] if self.after_two[u, v] else p2
        return [1 / V, p1, p2, p3]

    def em(self, positions, iterations):
        weights = [0.25] * 4
        for _ in range(iterations):
            sums = [0.0] * 4
            for t in positions:
                joint = [a * p for a, p in zip(weights, self.components(t))]
                sums = [s + j / sum(joint) for s, j in zip(sums, joint)]
            weights = [s / len(positions) for s in sums]
        return weights

    def log_p(self, t):
        return math.log(sum(a * p for a, p in zip(self.weights[self.bin(t)], self.components(t))))


@pytest.mark.parametrize('iterations', [1, 5])
def test_it_is_the_papers_formula(iterations):
    tokens_T = stream()
    model = interpolated.fit(tokens_T, TRAIN, VALID, V, iterations)
    reference = Reference(tokens_T, iterations)
    expected = [reference.log_p(t) for t in range(TEST.start, TEST.stop)]
    np.testing.assert_allclose(model.score(tokens_T, TEST), expected, rtol=1e-5)
    at_start = [reference.log_p(t) for t in range(4)]
    np.testing.assert_allclose(model.score(tokens_T, Span(0, 4)), at_start, rtol=1e-5)


def test_bins_are_those_of_the_formula():
    tokens_T = stream()
    model, reference = interpolated.fit(tokens_T, TRAIN, VALID, V), Reference(tokens_T, 1)
    bins_T = model.bins.of_stream(tokens_T, TEST)
    assert bins_T.tolist() == [reference.bin(t) for t in range(TEST.start, TEST.stop)]
    assert len(set(bins_T.tolist())) > 2 and bins_T.max() == model.bins.num_bins - 1
    contexts = np.stack([tokens_T[t - 5 : t] for t in range(TEST.start, TEST.stop)])
    np.testing.assert_array_equal(model.bins.of_contexts(contexts), bins_T)


def test_a_context_that_is_all_of_training_is_in_bin_zero():
    bins = interpolated.FrequencyBins.from_counts(counts.count(np.full(9, 0), Span(0, 9), 3, 3))
    assert bins.of_contexts(np.array([[0, 0], [1, 1]])).tolist() == [0, math.ceil(math.log(9))]


def test_bins_without_a_validation_word_share_their_weights():
    tokens_T = stream()
    model = interpolated.fit(tokens_T, TRAIN, VALID, V)
    used = set(model.bins.of_stream(tokens_T, VALID).tolist())
    unused = [q for q in range(model.bins.num_bins) if q not in used]
    assert unused
    shared = interpolated.fit(tokens_T, TRAIN, VALID, V)
    shared_weights = Reference(tokens_T, 5).em(range(VALID.start, VALID.stop), 5)
    for q in unused:
        np.testing.assert_allclose(shared.weights_QxM[q], shared_weights, rtol=1e-5)


def test_more_iterations_never_hurt_the_validation_words():
    tokens_T = stream()
    nll = [evaluate(interpolated.fit(tokens_T, TRAIN, VALID, V, i), tokens_T, VALID).nll for i in range(0, 12, 2)]
    assert all(b < a for a, b in zip(nll, nll[1:]))


@pytest.mark.nightly
def test_brown(brown_data):
    data = brown_data()
    tokens_T = np.asarray(data.tokens_T)
    model = interpolated.fit(tokens_T, data.train, data.valid, len(data.vocabulary))
    assert evaluate(model, tokens_T, data.valid).perplexity == pytest.approx(343.96, abs=0.05)
    assert evaluate(model, tokens_T, data.test).perplexity == pytest.approx(315.15, abs=0.05)
