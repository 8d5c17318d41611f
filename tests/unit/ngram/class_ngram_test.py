"""Tests word classes: the exchange search, the formula of class n-grams, and the file format."""

import numpy as np
import pytest
from helpers import refuses

from nplm_jax.data.stream import RARE, Span
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.ngram import class_ngram

V = 13
TRAIN = Span(0, 500)
WORDS = Vocabulary((RARE, 'the', 'dog', 'ran'), (1, 1, 1, 1))


def planted(seed=0):
    """Returns a stream of words 1-3, 4-6 and 7-9 in turn; 0 precedes the stream; 10-12 do not occur in training."""
    rng = np.random.default_rng(seed)
    tokens_T = 3 * (np.arange(560) % 3) + rng.integers(1, 4, 560)
    tokens_T[TRAIN.stop :: 9] = 11
    return tokens_T


def bigram_log_likelihood(tokens_T, classes_V):
    """Returns the sum of N(g,h) log N(g,h) minus the terms of the classes on either side, calculated from scratch."""
    before, after = classes_V[np.concatenate([[0], tokens_T[: TRAIN.stop - 1]])], classes_V[tokens_T[: TRAIN.stop]]
    size = classes_V.max() + 1
    tables = np.bincount(before * size + after), np.bincount(before), np.bincount(after)
    pairs, left, right = (np.sum(t * np.log(np.maximum(t, 1))) for t in tables)
    return pairs - left - right


@pytest.mark.parametrize('seed', range(3))
def test_exchange_finds_planted_classes(seed):
    classes_V = class_ngram.exchange(planted(seed), TRAIN, 3, V)
    assert {tuple(np.flatnonzero(classes_V[1:10] == c) + 1) for c in range(3)} == {(1, 2, 3), (4, 5, 6), (7, 8, 9)}


@pytest.mark.parametrize('seed', range(3))
def test_exchange_ends_where_no_single_move_gains(seed):
    tokens_T = np.random.default_rng(seed).geometric(0.3, TRAIN.stop) % V
    tokens_T[1::2] = tokens_T[::2] * 2 % V
    classes_V = class_ngram.exchange(tokens_T, TRAIN, 4, V, passes=50)
    best = bigram_log_likelihood(tokens_T, classes_V)
    for word in np.unique(tokens_T):
        for class_number in range(4):
            moved = classes_V.copy()
            moved[word] = class_number
            assert bigram_log_likelihood(tokens_T, moved) <= best + 1e-6


def test_exchange_keeps_its_counts_right_over_many_moves():
    tokens_T = np.random.default_rng(1).integers(0, V, TRAIN.stop)
    counted = class_ngram.count(tokens_T, TRAIN, 2, V)
    classes_V = np.arange(V) % 5
    search = class_ngram._ExchangeSearch(counted, classes_V, 5)
    moves = sum(search.move(word) for _ in range(3) for word in range(V))
    fresh = class_ngram._ExchangeSearch(counted, classes_V, 5)
    assert moves > 3
    for name in ('_pairs_2xGxG', '_totals_2xG'):
        np.testing.assert_array_equal(getattr(search, name), getattr(fresh, name))


def test_more_classes_than_words_and_one_class_only():
    tokens_T = planted()
    assert len(set(class_ngram.exchange(tokens_T, TRAIN, 40, V)[1:10])) == 9
    assert class_ngram.exchange(tokens_T, TRAIN, 1, V).tolist() == [0] * V
    with refuses('classes'):
        class_ngram.exchange(tokens_T, TRAIN, 0, V)


def test_words_that_training_has_not_share_the_class_of_most_words_that_occur_once():
    assert class_ngram.exchange(np.array([1, 1, 2]), Span(0, 3), 2, 4, passes=0).tolist() == [0, 1, 0, 0]


def test_the_class_ngram_is_its_formula():
    tokens_T = planted()
    classes_V = np.array([0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 0, 1, 2])
    model = class_ngram.ClassNgram.fit(tokens_T, TRAIN, 2, classes_V)
    counts_V = np.bincount(tokens_T[: TRAIN.stop], minlength=V)
    of_classes_G = np.exp(model.class_ngram.next_word(np.array([[2]])).astype(float))[0]
    p_V = np.exp(model.next_word(np.array([[5]])).astype(float))[0]
    total_G = np.array([0, *(counts_V[3 * g + 1 : 3 * g + 4].sum() for g in range(3))])
    # No word occurs once or twice, so the discount is 0.5 per word and three words per class; four words are unseen.
    seen = slice(1, 10)
    expected = of_classes_G[classes_V[seen]] * (counts_V[seen] - 0.5) / total_G[classes_V[seen]]
    np.testing.assert_allclose(p_V[seen], expected, rtol=1e-5)
    unseen = (of_classes_G[0] + (of_classes_G[1:] * 1.5 / total_G[1:]).sum()) / 4
    np.testing.assert_allclose(p_V[[0, 10, 11, 12]], unseen, rtol=1e-5)


def test_the_numbers_of_the_classes_do_not_matter():
    tokens_T = planted()
    classes_V = np.array([0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 0, 1, 2])
    model, renumbered = (class_ngram.ClassNgram.fit(tokens_T, TRAIN, 3, c) for c in (classes_V, 9 - 2 * classes_V))
    contexts = np.array([[0, 0], [1, 5], [12, 7]])
    np.testing.assert_allclose(renumbered.next_word(contexts), model.next_word(contexts), rtol=1e-6)
    np.testing.assert_allclose(renumbered.score(tokens_T, Span(0, 9)), model.score(tokens_T, Span(0, 9)), rtol=1e-6)


def test_blocks_of_unseen_words_do_not_change_their_score(monkeypatch):
    tokens_T = planted()
    model = class_ngram.ClassNgram.fit(tokens_T, TRAIN, 3, class_ngram.exchange(tokens_T, TRAIN, 4, V))
    in_one_block = model.score(tokens_T, Span(490, 560))
    monkeypatch.setattr(class_ngram, 'CONTEXTS_PER_BLOCK', 2)
    np.testing.assert_array_equal(model.score(tokens_T, Span(490, 560)), in_one_block)


def test_classes_are_numbered_by_their_first_word():
    assert class_ngram.renumber(np.array([7, 2, 7, 9, 2])).tolist() == [0, 1, 0, 2, 1]


def test_the_classes_are_written_as_lines(tmp_path):
    path = tmp_path / 'classes.tsv'
    class_ngram.save(np.array([0, 1, 2, 1]), WORDS, path)
    assert path.read_text(encoding='utf-8') == '<rare>\t0\nthe\t1\ndog\t2\nran\t1\n'


@pytest.mark.nightly
def test_brown(brown_data):
    data = brown_data()
    tokens_T = np.asarray(data.tokens_T)
    model = class_ngram.ClassNgram.fit(
        tokens_T, data.train, 3, class_ngram.exchange(tokens_T, data.train, 500, len(data.vocabulary), passes=2)
    )
    assert evaluate(model, tokens_T, data.valid).perplexity == pytest.approx(325.67, abs=0.5)
    assert evaluate(model, tokens_T, data.test).perplexity == pytest.approx(299.69, abs=0.5)


def test_only_the_words_before_a_span_on_which_it_depends_are_read():
    tokens_T = planted()
    model = class_ngram.ClassNgram.fit(tokens_T, TRAIN, 3, class_ngram.exchange(tokens_T, TRAIN, 3, V))
    changed_T, span = np.append(np.full(300, V), tokens_T[300:]), Span(310, 330)  # an invalid id
    np.testing.assert_array_equal(model.score(changed_T, span), model.score(tokens_T, span))
    np.testing.assert_array_equal(model.matched_lengths(changed_T, span), model.matched_lengths(tokens_T, span))


def test_ids_in_any_sequence_have_the_same_scores():
    tokens_T = planted()
    model = class_ngram.ClassNgram.fit(tokens_T, TRAIN, 3, class_ngram.exchange(tokens_T, TRAIN, 3, V))
    for kind in (tuple, list):
        np.testing.assert_array_equal(model.score(kind(tokens_T.tolist())), model.score(tokens_T))
