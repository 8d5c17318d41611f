"""Compares the weight search for n-best lists with brute force, and word edits with edits counted by hand."""

import numpy as np
import pytest

from nplm_jax.apps.decoding import reranking

pytest.importorskip('rapidfuzz')


@pytest.mark.parametrize(
    'words,reference,edits',
    [('a b c', 'a c', 1), ('', 'x y z', 3), ('a', 'a', 0), ('ab', 'a b', 2), ('b a', 'a b', 2), ('a x', 'a y', 1)],
)
def test_edits_are_of_words(words, reference, edits):
    assert reranking.word_edits(words.split(), reference.split()) == edits


def random_lists(rng, num_lists=6, size=5, num_scores=3):
    """Returns scores, rows of each list, and edits."""
    A = num_lists * size
    edits_A = rng.integers(0, 9, A)
    return rng.normal(size=(A, num_scores)), list(np.arange(A).reshape(num_lists, size)), edits_A


@pytest.mark.parametrize('seed', range(5))
def test_a_search_along_one_weight_finds_the_least_error_of_all_its_values(seed):
    scores_AxF, lists, edits_A = random_lists(np.random.default_rng(seed))
    t, found = reranking.search_line(scores_AxF[:, 0], scores_AxF[:, 1], lists, edits_A)
    at = lambda t: reranking.first_edits(scores_AxF[:, 0] + t * scores_AxF[:, 1], lists, edits_A)  # noqa: E731
    grid = [at(t) for t in np.linspace(-20, 20, 2001)]
    assert at(t) == pytest.approx(found) and found <= min(grid)


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
    scores_AxF, lists, edits_A = random_lists(rng)
    scores_AxF[:, 2] = 1000 * edits_A  # a cost
    weights_F, found = reranking.tune(scores_AxF, lists, edits_A, np.eye(3)[0])
    best = sum([edits_A[rows].min() for rows in lists])
    assert found == pytest.approx(best) and weights_F[2] < 0 and np.abs(weights_F).sum() == pytest.approx(1)
    totals_A = scores_AxF @ weights_F
    assert reranking.first_edits(totals_A, lists, edits_A) == pytest.approx(best)


@pytest.mark.parametrize('seed', range(5))
def test_a_score_that_is_the_same_everywhere_gets_no_weight(seed):
    scores_AxF, lists, edits_A = random_lists(np.random.default_rng(seed))
    scores_AxF[:, 1] = 7
    weights_F, _ = reranking.tune(scores_AxF, lists, edits_A, np.eye(3)[0])
    assert weights_F[1] == 0 and np.abs(weights_F[[0, 2]]).max() > 1e-3


@pytest.mark.parametrize('seed', range(3))
def test_tuned_weights_are_never_worse_than_those_at_the_start(seed):
    scores_AxF, lists, edits_A = random_lists(np.random.default_rng(seed), num_lists=3, size=2)
    start_F = np.array([1.0, -1.0, 0.5])
    weights_F, found = reranking.tune(scores_AxF, lists, edits_A, start_F)
    assert found <= reranking.first_edits(scores_AxF @ start_F, lists, edits_A)
    assert reranking.first_edits(scores_AxF @ weights_F, lists, edits_A) == pytest.approx(found)
