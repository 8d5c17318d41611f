"""Tests that a back-off model over another vocabulary is a distribution with the expected probabilities."""

import numpy as np
import pytest

from nplm_jax.data.stream import RARE, Span
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.ngram import kneser_ney, unsmoothed
from nplm_jax.ngram.class_ngram import over_vocabulary
from nplm_jax.ngram.counts import count

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')

INNER = Vocabulary((RARE, *'abcdefg'), (0,) * 8)
OUTER = Vocabulary((RARE, 'x', 'c', 'a', 'y', 'z'), (0,) * 6)
STREAM = np.random.default_rng(1).integers(0, 8, 300)
INNERS = {
    'kneser_ney': lambda: kneser_ney.fit_modified(count(STREAM, Span(0, 300), 3, 8)),
    'unigram': lambda: kneser_ney.fit_modified(count(STREAM, Span(0, 300), 1, 8)),
    'zeros': lambda: unsmoothed.unsmoothed_backoff(count(STREAM % 5, Span(0, 300), 3, 8)),
}


@pytest.mark.parametrize('name', INNERS)
@pytest.mark.parametrize('outer', [OUTER, INNER, Vocabulary((RARE, 'x'), (0, 0))])
def test_the_probabilities_sum_to_one(name, outer):
    model = over_vocabulary(INNERS[name](), INNER, outer)
    contexts = np.random.default_rng(0).integers(0, len(outer), (30, 4))
    np.testing.assert_allclose(np.exp(model.next_word(contexts).astype(np.float64)).sum(1), 1, atol=1e-6)


def test_each_word_by_the_rule():
    model = over_vocabulary(INNERS['kneser_ney'](), INNER, OUTER)
    p = np.exp(model.next_word(np.array([[3, 1]]))[0].astype(np.float64))
    inner = np.exp(
        INNERS['kneser_ney']().next_word(np.array([[1, 0]]))[0].astype(np.float64)
    )  # a, then an unknown word
    share = inner[0] / 4  # <rare>, x, y and z
    expected = [share + inner[[2, 4, 5, 6, 7]].sum(), share, inner[3], inner[1], share, share]
    np.testing.assert_allclose(p, expected, rtol=1e-5)


@pytest.mark.parametrize('name', INNERS)
def test_scores_of_a_stream_are_next_word_probabilities(name):
    model = over_vocabulary(INNERS[name](), INNER, OUTER)
    stream = np.random.default_rng(2).integers(0, 6, 700)  # more rare words than fit into a block
    scores = model.score(stream, Span(2, 700))
    for t in (2, 3, 50, 600, *np.flatnonzero(stream[2:] == 0)[-5:] + 2):
        expected = model.next_word(stream[None, max(t - 3, 0) : t])[0, stream[t]]
        np.testing.assert_allclose(scores[t - 2], expected, rtol=1e-5)


def test_over_the_same_words_it_is_the_model_itself():
    model = over_vocabulary(INNERS['kneser_ney'](), INNER, INNER)
    contexts = np.random.default_rng(0).integers(0, 8, (30, 4))
    np.testing.assert_allclose(model.next_word(contexts), INNERS['kneser_ney']().next_word(contexts), atol=1e-6)
