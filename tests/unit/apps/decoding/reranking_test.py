"""The search for weights of n-best lists against brute force, and its measures by hand and against NLTK's."""

import math

import numpy as np
import pytest
from nltk.translate.bleu_score import corpus_bleu

from nplm_jax.apps.decoding import reranking


def test_the_word_error_rate_is_that_of_all_texts_together():
    pairs = [('a b c', 'a c'), ('', 'x y z'), ('a', 'a')]
    sums_S = np.sum([reranking.edit_statistics(a.split(), b.split()) for a, b in pairs], axis=0)
    assert reranking.word_error_rate(sums_S) == pytest.approx((1 + 3 + 0) / (2 + 3 + 1))
    empty = np.array(reranking.edit_statistics(['a'], [])), np.array(reranking.edit_statistics([], []))
    assert list(map(reranking.word_error_rate, empty)) == [math.inf, 0.0]


def test_bleu_is_that_of_nltk():
    pairs = [
        ('the cat sat on the mat today', 'the cat sat on a mat'),
        ('it was very cold in the night', 'it was very cold at night , they said'),
    ]
    texts, references = zip(*((a.split(), b.split()) for a, b in pairs))
    for chosen, length in ((texts, 14), ([text[:6] for text in texts], 12)):  # longer and shorter than the references
        sums_S = np.sum([reranking.bleu_statistics(*pair) for pair in zip(chosen, references)], axis=0, dtype=float)
        expected = corpus_bleu([[reference] for reference in references], chosen)
        assert sums_S[0] == length and 1 - reranking.bleu_error(sums_S) == pytest.approx(expected)
    nothing = np.array(reranking.bleu_statistics(['x'], ['y']), float)
    assert reranking.bleu_error(nothing) == 1


def random_lists(rng, num_lists=6, size=5, num_scores=3):
    """Returns scores, rows of each list, and edits with the length of the reference."""
    A = num_lists * size
    statistics_AxS = np.stack([rng.integers(0, 9, A), np.repeat(10, A)], axis=1).astype(float)
    return rng.normal(size=(A, num_scores)), list(np.arange(A).reshape(num_lists, size)), statistics_AxS


@pytest.mark.parametrize('seed', range(5))
def test_a_search_along_one_weight_finds_the_least_error_of_all_its_values(seed):
    scores_AxF, lists, statistics_AxS = random_lists(np.random.default_rng(seed))
    error = reranking.word_error_rate
    t, found = reranking.search_line(scores_AxF[:, 0], scores_AxF[:, 1], lists, statistics_AxS, error)
    at = lambda t: reranking.first_error(scores_AxF[:, 0] + t * scores_AxF[:, 1], lists, statistics_AxS, error)  # noqa: E731
    grid = [at(t) for t in np.linspace(-20, 20, 2001)]
    assert at(t) == pytest.approx(found) and found <= min(grid) + 1e-12


def test_an_impossible_alternative_counts_as_less_probable_than_all_others():
    assert reranking.finite([-3, -np.inf, -1, -1e30]).tolist() == [-3, -103, -1, -103]
    assert reranking.finite([-np.inf]).tolist() == [-100]


def test_equal_and_parallel_lines_have_one_place_in_the_envelope():
    offsets, slopes = np.array([1.0, 1.0, 2.0, 0.0, 3.0]), np.array([0.0, 0.0, 0.0, 1.0, -1.0])
    envelope = reranking.upper_envelope(offsets, slopes)
    assert envelope == [(-np.inf, 4), (1.0, 2), (2.0, 3)]
    assert reranking.upper_envelope(np.zeros(3), np.zeros(3)) == [(-np.inf, 0)]  # the first line of the list


def test_a_score_that_knows_the_errors_is_found_whatever_its_sign_and_scale():
    rng = np.random.default_rng(0)
    scores_AxF, lists, statistics_AxS = random_lists(rng)
    scores_AxF[:, 2] = 1000 * statistics_AxS[:, 0]  # a cost
    weights_F, found = reranking.tune(scores_AxF, lists, statistics_AxS, reranking.word_error_rate, np.eye(3)[0])
    best = np.mean([statistics_AxS[rows, 0].min() for rows in lists]) / 10
    assert found == pytest.approx(best) and weights_F[2] < 0 and np.abs(weights_F).sum() == pytest.approx(1)
    totals_A = scores_AxF @ weights_F
    assert reranking.first_error(totals_A, lists, statistics_AxS, reranking.word_error_rate) == pytest.approx(best)


@pytest.mark.parametrize('seed', range(5))
def test_a_score_that_is_the_same_everywhere_gets_no_weight(seed):
    scores_AxF, lists, statistics_AxS = random_lists(np.random.default_rng(seed))
    scores_AxF[:, 1] = 7
    weights_F, _ = reranking.tune(scores_AxF, lists, statistics_AxS, reranking.word_error_rate, np.eye(3)[0])
    assert weights_F[1] == 0 and np.abs(weights_F[[0, 2]]).max() > 1e-3


@pytest.mark.parametrize('seed', range(3))
def test_tuned_weights_are_never_worse_than_those_at_the_start(seed):
    scores_AxF, lists, statistics_AxS = random_lists(np.random.default_rng(seed), num_lists=3, size=2)
    start_F = np.array([1.0, -1.0, 0.5])
    error = reranking.word_error_rate
    weights_F, found = reranking.tune(scores_AxF, lists, statistics_AxS, error, start_F)
    assert found <= reranking.first_error(scores_AxF @ start_F, lists, statistics_AxS, error)
    assert reranking.first_error(scores_AxF @ weights_F, lists, statistics_AxS, error) == pytest.approx(found)
