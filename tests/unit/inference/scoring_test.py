"""Compares the scores of lines with hand calculations for a model of order 3 with log10 P(word i) = -i."""

import math

import numpy as np
import pytest

from nplm_jax.data.line_start import LineStart
from nplm_jax.data.tokenizers import cutting
from nplm_jax.data.tokenizers.byte_level import ByteTokenizer
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference import scoring
from nplm_jax.inference.scoring import Totals
from nplm_jax.models.language_model import LanguageModel

MARKS = LineStart(prefix=(1,), marks=(1, 2))


class Falling(LanguageModel):
    """A model with log10 P(word i) = -i."""

    n = 3

    def score_span(self, tokens_T, span):
        return -np.log(10.0) * tokens_T[span.start : span.stop]

    def next_word(self, contexts_BxN):
        raise NotImplementedError

    def matched_lengths(self, tokens_T, span):
        return np.full(len(span), 3)


@pytest.mark.parametrize('ids,prefix', [([3, 4], [1]), ([1, 4], []), ([2, 4], []), ([1], [1]), ([], [1])])
def test_a_line_that_goes_on_after_its_own_mark_has_nothing_before_it(ids, prefix):
    assert MARKS.before(np.array(ids, np.int32)).tolist() == prefix
    assert LineStart().before(np.array(ids, np.int32)).tolist() == []


@pytest.mark.parametrize('ids,prefix', [([3], [1]), ([1], []), ([2, 4], []), ([], [1])])
def test_the_beginning_of_a_line_has_the_context_of_the_whole_line(ids, prefix):
    assert MARKS.before(np.array(ids, np.int32), continues=True).tolist() == prefix


def bytes_of(text):
    """Returns a vocabulary of bytes with their counts in a text."""
    tokens = (tokenizer := ByteTokenizer(boundary_tokens=True)).tokens
    (read,) = cutting.tokenize(tokenizer, [text])
    return Vocabulary(tokens, tuple(map(read.count, tokens)), tokenizer)


def test_a_text_of_bytes_begins_after_the_most_frequent_line_end():
    words = bytes_of('a\nb\n\rc')
    assert words.tokenizer.decode(words.decode(LineStart.of(words).prefix)) == '\n'


def test_a_line_begins_after_a_newline_even_if_carriage_returns_are_more_frequent():
    words = bytes_of('a\r\r\nb\r\n')
    assert LineStart.of(words).has_returns and not LineStart.of(bytes_of('a\nb')).has_returns
    assert words.tokenizer.decode(words.decode(LineStart.of(words).prefix)) == '\n'


def test_a_line_has_no_end_if_no_line_end_occurs():
    start = LineStart.of(words := bytes_of('a b'))
    assert words.decode(start.prefix) == ['<text>'] and start.end == ()
    start = LineStart.of(bytes_of('a\nb'))
    assert start.end == start.prefix != ()


def test_a_text_of_tokens_without_a_line_end_has_nothing_before_it():
    class Lossless(WordTokenizer):
        is_lossless = True

    assert LineStart.of(Vocabulary(('<rare>', 'a', 'b'), (0, 2, 1), Lossless())) == LineStart()


@pytest.mark.parametrize('lines', [[[1], [5, 6]], [[], [2], [5, 6]], [[5], [6]]])
def test_the_scores_of_a_stream_do_not_depend_on_its_division_into_lines(lines):
    scored = scoring.score(Falling(), [np.array(line, np.int32) for line in lines], MARKS, stream=True)
    (whole,) = scoring.score(Falling(), [np.concatenate(lines).astype(np.int32)], MARKS, stream=True)
    assert np.concatenate([line.lengths_T for line in scored]).tolist() == whole.lengths_T.tolist()


@pytest.mark.parametrize('stream,lengths', [(False, [[2, 3, 3], [2]]), (True, [[2, 3, 3], [3]])])
def test_no_ngram_reaches_over_the_beginning_of_a_line_or_of_the_stream(stream, lengths):
    lines = scoring.score(Falling(), [np.array([5, 6, 7]), np.array([8])], MARKS, stream)
    assert [line.lengths_T.tolist() for line in lines] == lengths
    assert [line.ids_T.tolist() for line in lines] == [[5, 6, 7], [8]]
    np.testing.assert_allclose(np.concatenate([line.log10_p_T for line in lines]), [-5, -6, -7, -8])


def test_totals_count_words_outside_the_vocabulary_apart():
    totals = scoring.total(scoring.score(Falling(), [np.array([2, 0, 3]), np.array([1])]))
    assert (totals.tokens, totals.oovs, totals.log10_p, totals.log10_p_known) == pytest.approx((4, 1, -6, -6))
    assert totals.perplexity == pytest.approx(10**1.5) and totals.perplexity_known == pytest.approx(100)
    assert scoring.total([]) == Totals(0, 0, 0.0, 0.0) and math.isnan(scoring.total(iter([])).perplexity)
    assert Totals(1, 0, -309.0, -309.0).perplexity == math.inf and math.isnan(Totals(1, 1, -1.0, 0.0).perplexity_known)
