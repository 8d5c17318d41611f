"""The study of the open vocabulary: its page shows the tables that its results give, and its texts are the same."""

import pytest
from helpers import ROOT, corpus_settings

from experiments import study
from experiments.section5 import open_vocabulary, open_vocabulary_table
from nplm_jax.data import corpora

TABLES = open_vocabulary_table.make(study.Flags())
PAGE = (ROOT / 'experiments' / 'section5' / 'open_vocabulary.md').read_text()


@pytest.mark.parametrize('part', TABLES.split('\n\n'), ids=lambda part: part.split('\n')[0][:30])
def test_the_page_shows_what_the_results_give(part):
    assert part in PAGE


def test_the_texts_on_which_tokenisations_are_compared_are_the_same_words():
    streams = []
    for cased in (False, True):
        changes = dict.fromkeys(('lowercase', 'split_possessive', 'boundary_tokens'), not cased)
        corpus = corpora.load(corpus_settings('brown', train=800_000.0, valid=200_000.0, **changes))
        span = open_vocabulary.last_span(corpus, not cased)
        assert span.start >= corpus.test.start and span.stop == corpus.test.stop
        words = ''.join(corpus.words[span.start : span.stop]).replace('<text>', '').replace('<p>', '')
        streams.append(words.lower())
    assert streams[0] == streams[1]
    assert len(streams[1]) + len(corpus.words) - span.start == open_vocabulary.last_texts()[2]
