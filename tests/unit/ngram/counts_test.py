"""Tests tables of n-grams counted by hand, and the models without smoothing."""

import math

import numpy as np
import pytest
from helpers import refuses

from nplm_jax.data.stream import Span
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.ngram import counts, unsmoothed
from nplm_jax.utils.errors import BadInput

TOKENS = np.array([1, 2, 1, 2, 3, 1], np.int32)  # a vocabulary of 5 words, of which 4 does not occur


def ngrams(counted, order):
    """Returns {words: count} for the n-grams that occur."""
    table = counted.table
    occurring = {}
    for node, occurrences in enumerate(counted.counts[order - 1]):
        words, at = [], node
        for k in range(order, 0, -1):
            words.insert(0, int(table.keys[k - 1][at] % table.vocabulary_size))
            at = int(table.keys[k - 1][at] // table.vocabulary_size)
        if occurrences:
            occurring[tuple(words)] = int(occurrences)
    return occurring


def test_counts_by_hand_with_the_rare_word_before_the_stream():
    counted = counts.count(TOKENS, Span(0, 6), 3, 5)
    assert ngrams(counted, 1) == {(1,): 3, (2,): 2, (3,): 1}
    assert ngrams(counted, 2) == {(0, 1): 1, (1, 2): 2, (2, 1): 1, (2, 3): 1, (3, 1): 1}
    trigrams = {(0, 0, 1): 1, (0, 1, 2): 1, (1, 2, 1): 1, (2, 1, 2): 1, (1, 2, 3): 1, (2, 3, 1): 1}
    assert ngrams(counted, 3) == trigrams


def test_a_span_counts_its_own_words_after_those_before_it():
    assert ngrams(counts.count(TOKENS, Span(3, 6), 2, 5), 2) == {(1, 2): 1, (2, 3): 1, (3, 1): 1}
    assert ngrams(counts.count(TOKENS, Span(1, 2), 4, 5), 4) == {(0, 0, 1, 2): 1}


def test_every_word_counts_once_in_every_order():
    tokens_T = np.random.default_rng(0).integers(0, 7, 300)
    counted = counts.count(tokens_T, Span(11, 300), 5, 7)
    assert [int(c.sum()) for c in counted.counts] == [289] * 5
    assert counted.totals(3).sum() == 289


def test_suffixes_drop_the_first_word():
    counted = counts.count(TOKENS, Span(0, 6), 3, 5)
    node = counted.table.nodes(np.array([1, 2, 3]), 3)[3][-1]
    assert counted.suffix_nodes[2][node] == counted.table.nodes(np.array([2, 3]), 2)[2][-1]


def test_successors_of_several_contexts_at_once():
    table = counts.count(TOKENS, Span(0, 6), 2, 5).table
    rows, words, _ = table.successors(2, np.array([2, -1, 4, 1]))
    assert (rows.tolist(), words.tolist()) == ([0, 0, 3], [1, 3, 2])


def test_a_table_that_64_bits_cannot_hold_is_refused():
    with refuses('4 words and a vocabulary of 4,611,686,018,427,387,904'):
        counts.count(np.array([1, 2, 3]), Span(0, 3), 2, 2**62)


def test_a_large_vocabulary_and_a_high_order_are_counted_exactly():
    size = 1_000_003
    tokens_T = np.array([size - 1, size - 2] * 4)
    counted = counts.count(tokens_T, Span(0, 8), 7, size)
    assert ngrams(counted, 7)[(size - 1, size - 2) * 3 + (size - 1,)] == 1
    assert ngrams(counted, 2)[(size - 1, size - 2)] == 4


@pytest.mark.parametrize('tokens, span, n', [([0, 5], (0, 2), 2), ([0, -1], (0, 2), 2), ([0, 1], (1, 1), 2)])
def test_what_cannot_be_counted_is_refused(tokens, span, n):
    with pytest.raises(BadInput):
        counts.count(np.array(tokens), Span(*span), n, 5)


def test_relative_frequencies_by_hand():
    counted = counts.count(TOKENS, Span(0, 6), 2, 5)
    p = np.exp(unsmoothed.add_delta(counted).next_word(np.array([[2], [4]])))
    np.testing.assert_allclose(p, [[0, 0.5, 0, 0.5, 0], [0.2] * 5], rtol=1e-6)
    p = np.exp(unsmoothed.add_delta(counted, 0.5).next_word(np.array([[2]])))
    np.testing.assert_allclose(p, [[0.5 / 4.5, 1.5 / 4.5, 0.5 / 4.5, 1.5 / 4.5, 0.5 / 4.5]], rtol=1e-6)


def test_a_context_never_seen_is_shortened():
    model = unsmoothed.unsmoothed_backoff(counts.count(TOKENS, Span(0, 6), 3, 5))
    # (3, 2) does not occur, so the word is predicted from 2; 4 does not occur, so from no context.
    p = np.exp(model.next_word(np.array([[3, 2], [1, 4], [1, 2]])))
    halves = [0, 0.5, 0, 0.5, 0]
    np.testing.assert_allclose(p, [halves, [0, 3 / 6, 2 / 6, 1 / 6, 0], halves], rtol=1e-6)


def test_a_negative_delta_is_refused():
    with refuses('delta'):
        unsmoothed.add_delta(counts.count(TOKENS, Span(0, 6), 2, 5), -1)


def test_an_infinite_perplexity_says_how_many_words_were_impossible():
    model = unsmoothed.add_delta(counts.count(TOKENS, Span(0, 6), 1, 5))
    score = evaluate(model, np.array([1, 4, 2, 4, 4]), Span(0, 5))
    assert (score.perplexity, score.impossible) == (math.inf, 3)
    assert evaluate(model, TOKENS, Span(0, 6)).impossible == 0
