"""Compares both Kneser-Ney models with plain implementations of their formulas on random text."""

import collections
import dataclasses
import fractions
import functools
import math

import numpy as np
import pytest

from nplm_jax.data.stream import Span
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.ngram import kneser_ney, lines
from nplm_jax.ngram.counts import LineMarks, count

V = 101
TRAIN, TEST = Span(0, 1500), Span(1500, 1560)
LINE = 1  # the mark between lines


def stream():
    """Returns many rare words, each depending on the one before; 0, 96 and above do not occur in training."""
    rng = np.random.default_rng(2)
    zipf = 1 / np.arange(1, 96) ** 1.8
    tokens = 1 + rng.choice(95, TEST.stop, p=zipf / zipf.sum())
    follow = rng.random(TEST.stop) < 0.3
    tokens[1:][follow[1:]] = (3 * tokens[:-1][follow[1:]]) % 95 + 1
    tokens[TRAIN.stop :: 8] = 97
    return tokens


def stream_counts(words, n, line=None):
    """Returns the adjusted counts of a stream's n-grams for each order; unknown words precede the stream.

    N-grams that begin with the mark `line` keep their counts.
    """
    padded = [0] * (n - 1) + [int(t) for t in words]
    counts = {n: collections.Counter(tuple(padded[t : t + n]) for t in range(len(words)))}
    for k in range(n - 1, 0, -1):
        longer = {tuple(padded[t + n - k - 1 : t + n]) for t in range(len(words))}
        counts[k] = collections.Counter(ngram[1:] for ngram in longer)
        if k > 1:
            ngrams = collections.Counter(tuple(padded[t + n - k : t + n]) for t in range(len(words)))
            counts[k] |= {ngram: c for ngram, c in ngrams.items() if ngram[0] == line}
    return counts


def line_counts(lines, n):
    """Returns the adjusted counts of lines, each between two marks `LINE`, which lmplz calls <s> and </s>."""
    occurrences = {k: collections.Counter() for k in range(1, n + 1)}
    for words in ((LINE, *line, LINE) for line in lines):
        for stop in range(2, len(words) + 1):
            for k in range(1, min(n, stop) + 1):
                occurrences[k][words[stop - k : stop]] += 1
    counts = {n: occurrences[n]}
    for k in range(1, n):
        counts[k] = collections.Counter(ngram[1:] for ngram in occurrences[k + 1])
        counts[k] |= {ngram: c for ngram, c in occurrences[k].items() if k > 1 and ngram[0] == LINE}
    return counts


class Reference:
    """Implements the recursive formulas with dictionaries of tuples."""

    def __init__(self, counts, size, modified, min_count=1):
        self.size, self.modified, self.min_count, self.counts = size, modified, min_count, counts
        self.discounts = {k: self._discounts(list(c.values())) for k, c in self.counts.items()}
        self.followers = collections.defaultdict(list)
        for counts in self.counts.values():
            for ngram in counts:
                self.followers[ngram[:-1]].append(ngram[-1])
        self.p = functools.cache(self.p)

    def _discounts(self, values):
        n1, n2, n3, n4 = (values.count(j) for j in (1, 2, 3, 4))
        if not (n1 and n2 and (n3 or not self.modified)):
            return [0, 0.5, 1, 1.5] if self.modified else [0, 0.5, 0.5, 0.5]
        y = fractions.Fraction(n1, n1 + 2 * n2)
        if not self.modified:
            return [0, y, y, y]
        discounts = [0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
        return discounts if min(discounts) >= 0 else [0, 0.5, 1, 1.5]

    def p(self, history, word):
        k = len(history) + 1
        lower = 1 / self.size if k == 1 else self.p(history[1:], word)
        followers = self.followers.get(history, [])
        if not followers:
            return lower
        counts = {w: self.counts[k][(*history, w)] for w in followers}
        total = sum(counts.values())
        least = self.min_count if k > 2 else 1
        kept = {w: (c - float(self.discounts[k][min(c, 3)])) / total for w, c in counts.items() if c >= least}
        free = 1 - sum(kept.values())
        if self.modified or k == 1:
            return kept.get(word, 0) + free * lower
        if len(kept) == self.size:
            return counts[word] / total
        if word in kept:
            return kept[word]
        return free * lower / (1 - sum(self.p(history[1:], w) for w in kept))


FITTED = {
    'backoff': kneser_ney.fit_backoff,
    'published': functools.partial(kneser_ney.fit_backoff, min_count=1),
    'modified': kneser_ney.fit_modified,
}


@pytest.mark.parametrize('line', [None, 7])
@pytest.mark.parametrize('n', [2, 3, 4])
@pytest.mark.parametrize('form', FITTED)
def test_it_is_the_published_formula(form, n, line):
    tokens_T = stream()
    marks = None if line is None else LineMarks(line, are_crossed=True)
    model = FITTED[form](count(tokens_T, TRAIN, n, V, marks=marks))
    counts = stream_counts(tokens_T[: TRAIN.stop], n, line)
    reference = Reference(counts, V, form == 'modified', 2 if form == 'backoff' else 1)
    words = [int(t) for t in tokens_T]
    expected = [math.log(reference.p(tuple(words[t - n + 1 : t]), words[t])) for t in range(TEST.start, TEST.stop)]
    np.testing.assert_allclose(model.score(tokens_T, TEST), expected, rtol=1e-5)
    all_words = [math.log(reference.p((0,) * (n - 1), w)) for w in range(V)]
    np.testing.assert_allclose(model.next_word(np.zeros((1, n), int))[0], all_words, rtol=1e-5)


def test_unigrams_below_the_highest_order_count_different_predecessors():
    # 2 occurs as often as 1 but only after 1: as a continuation, it is a third as likely before discounts.
    tokens_T = np.array([1, 2, 1, 2, 3, 1, 2, 4, 1, 2, 5, 4, 5, 3])
    with pytest.warns(kneser_ney.DiscountWarning):
        p = np.exp(kneser_ney.fit_modified(count(tokens_T, Span(0, 14), 2, 6)).next_word(np.array([[0, 0]])))[0]
    assert p[1] > 2 * p[2]


@pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')
@pytest.mark.parametrize('form', FITTED)
@pytest.mark.parametrize('times', [1, 2**32])
def test_the_first_word_of_a_line_is_predicted_from_its_count_at_the_beginning_of_lines(form, times):
    # A full stop precedes every line, so no first word has more than one distinct predecessor in the stream.
    rng = np.random.default_rng(3)
    texts = [(LINE, int(word), *rng.integers(4, 20, 6).tolist(), 3) for word in rng.geometric(0.3, 2000) + 20]
    tokens_T = np.array([word for text in texts for word in text])
    size = int(tokens_T.max()) + 1
    counted = count(tokens_T, Span(0, len(tokens_T)), 3, size, marks=LineMarks(LINE, are_crossed=True))
    counted = dataclasses.replace(counted, counts=tuple(c.astype(np.int64) * times for c in counted.counts))
    p = np.exp(FITTED[form](counted).next_word(np.array([[2, LINE]])))[0]  # 2 does not occur
    frequencies = np.bincount([text[1] for text in texts], minlength=size) / len(texts)
    common = frequencies > 0.01
    assert common.sum() > 5
    np.testing.assert_allclose(p[common], frequencies[common], rtol=0.1)


def test_unigram_model_by_hand():
    # Counts 3, 2, 1, 1 of the words 1 to 4; n1 = 2, n2 = 1, D = 2 / (2 + 2 * 1) = 0.5, four discounts are free.
    tokens_T = np.array([1, 1, 1, 2, 2, 3, 4])
    p = np.exp(kneser_ney.fit_backoff(count(tokens_T, Span(0, 7), 1, 5)).next_word(np.zeros((1, 0), int)))[0]
    np.testing.assert_allclose(p, [0.4 / 7, 2.9 / 7, 1.9 / 7, 0.9 / 7, 0.9 / 7], rtol=1e-6)


def test_modified_discounts_by_hand():
    # n1..n4 = 8, 4, 2, 1: Y = 1/2, D = 1 - 2 * 0.5 * 4/8, 2 - 3 * 0.5 * 2/4, 3 - 4 * 0.5 * 1/2.
    counts_of_words = [1] * 8 + [2] * 4 + [3] * 2 + [4]
    tokens_T = np.repeat(np.arange(15), counts_of_words)
    p = np.exp(kneser_ney.fit_modified(count(tokens_T, Span(0, 26), 1, 15)).next_word(np.zeros((1, 0), int)))[0]
    discounts = np.repeat([0.5, 1.25, 2.0, 2.0], [8, 4, 2, 1])
    np.testing.assert_allclose(p, (counts_of_words - discounts + discounts.sum() / 15) / 26, rtol=1e-6)


def test_a_discount_that_cannot_be_estimated_is_a_stated_one_with_a_warning():
    tokens_T = np.array([1, 2, 1, 2, 1, 2])  # no n-gram of count 1 but the first, none of count 2
    with pytest.warns(kneser_ney.DiscountWarning, match=r'\b1\b.*\b0\.5\b.*\b1\b.*\b1\.5$'):
        modified = kneser_ney.fit_modified(count(tokens_T, Span(0, 6), 1, 3))
    # Both words occur three times: 1.5 is subtracted from each, and each of the three words gets a third of this 3.
    p = np.exp(modified.next_word(np.zeros((1, 0), int)))[0]
    np.testing.assert_allclose(p, [1 / 6, 2.5 / 6, 2.5 / 6], rtol=1e-6)
    with pytest.warns(kneser_ney.DiscountWarning, match=r'\b1\b.*\b0\.5$'):
        kneser_ney.fit_backoff(count(tokens_T, Span(0, 6), 1, 3))


@pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')
@pytest.mark.parametrize('form', FITTED)
def test_small_texts_of_lines_at_any_order(form):
    # Most orders exceed the longest line. The model has no such n-grams and backs off to the order below.
    rng = np.random.default_rng(1)
    for _ in range(40):
        n, size = int(rng.integers(1, 7)), int(rng.integers(4, 9))
        lines = [tuple(rng.integers(2, size - 1, rng.integers(1, 5)).tolist()) for _ in range(int(rng.integers(1, 9)))]
        tokens_T = np.array([LINE, *(word for line in lines for word in (*line, LINE))])
        model = FITTED[form](count(tokens_T, Span(1, len(tokens_T)), n, size, marks=LineMarks(LINE, None)))
        reference = Reference(line_counts(lines, n), size, form == 'modified', 2 if form == 'backoff' else 1)
        histories = {(LINE, *line)[:stop][-(n - 1) :] for line in lines for stop in range(1, len(line) + 2)}
        histories = sorted(histories) if n > 1 else [()]
        contexts = np.array([(*[0] * n, *history)[len(history) :] for history in histories])
        expected = [[float(reference.p(history, w)) for w in range(size)] for history in histories]
        np.testing.assert_allclose(np.exp(model.next_word(contexts)), expected, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(np.sum(expected, 1), 1, rtol=1e-6)


def test_an_order_above_the_longest_line_is_that_of_lmplz():
    # From lmplz -o 6 --discount_fallback, built from kpu/kenlm at 4cb443e, for the lines `a b`, `b a` and `c a a`.
    tokens_T = np.array([1, 2, 3, 1, 3, 2, 1, 4, 2, 2, 1])
    with pytest.warns(kneser_ney.DiscountWarning, match='1, 2, 3, 4, 5, 6'):
        model = kneser_ney.fit_modified(count(tokens_T, Span(1, 11), 6, 5, marks=LineMarks(1, None)))
    begin = [x.stop - x.start for x in model.table.beginning_with(1)]
    assert [model.table.size(k) for k in range(1, 7)] == [5, 9, 7, 4, 1, 0] and begin == [1, 3, 3, 3, 1, 0]
    lmplz = [-0.6218041, -0.07485986, -0.08245072, -0.03680265]  # log10 P of c, a, a and the end
    np.testing.assert_allclose(model.score(tokens_T, Span(7, 11)) / math.log(10), lmplz, atol=1e-6)


def test_a_discount_of_zero_stays_zero():
    # n1..n4 = 6, 3, 4, 0: Y = 1/2, D2 = 2 - 3 * 0.5 * 4/3 = 0. lmplz keeps it too.
    counts_of_words = [1] * 6 + [2] * 3 + [3] * 4
    tokens_T = np.repeat(np.arange(13), counts_of_words)
    p = np.exp(kneser_ney.fit_modified(count(tokens_T, Span(0, 24), 1, 13)).next_word(np.zeros((1, 0), int)))[0]
    discounts = np.repeat([0.5, 0.0, 3.0], [6, 3, 4])
    np.testing.assert_allclose(p, (counts_of_words - discounts + discounts.sum() / 13) / 24, rtol=1e-6)


def test_estimated_discounts_do_not_warn(recwarn):
    kneser_ney.fit_modified(count(stream(), TRAIN, 3, V))
    assert not recwarn.list


@pytest.mark.nightly
@pytest.mark.parametrize(
    'fit, n, valid, test',
    [
        (kneser_ney.fit_backoff, 3, 342.18, 315.86),
        (kneser_ney.fit_backoff, 5, 341.15, 314.38),
        (kneser_ney.fit_modified, 3, 324.89, 299.10),
        (kneser_ney.fit_modified, 5, 322.27, 296.72),
    ],
)
def test_brown(brown_data, fit, n, valid, test):
    data = brown_data()
    tokens_T = np.asarray(data.tokens_T)
    model = fit(count(tokens_T, data.train, n, len(data.vocabulary), marks=lines.marks_of(data)))
    assert evaluate(model, tokens_T, data.valid).perplexity == pytest.approx(valid, abs=0.05)
    assert evaluate(model, tokens_T, data.test).perplexity == pytest.approx(test, abs=0.05)


@pytest.mark.nightly
@pytest.mark.parametrize('n, test', [(3, 332.6), (4, 330.5), (5, 329.8)])
def test_modified_agrees_with_the_standard_toolkit_on_cased_brown(brown_data, n, test):
    data = brown_data(',cased')
    tokens_T = np.asarray(data.tokens_T)
    model = kneser_ney.fit_modified(count(tokens_T, data.train, n, len(data.vocabulary)))
    assert evaluate(model, tokens_T, data.test).perplexity == pytest.approx(test, abs=0.1)
