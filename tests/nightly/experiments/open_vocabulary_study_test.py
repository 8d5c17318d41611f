"""The study of open vocabularies: all compared tokenizations read the same text."""

from helpers import corpus_settings

from experiments.paper.section5 import open_vocabulary
from nplm_jax.data import corpora


def test_the_texts_on_which_tokenizations_are_compared_are_the_same_words():
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
