import collections
import itertools
import math

import numpy as np
import pytest
from helpers import corpus_settings, refuses

from nplm_jax.data import corpora, encoding, vocabulary, vocabulary_files
from nplm_jax.data.stream import Span
from nplm_jax.data.word_stream import WordStream
from nplm_jax.utils.errors import BadInput

WORDS = 'the cat the dog a cat the bird a mouse'.split()


def test_most_frequent_first_and_ties_in_order_of_occurrence():
    v = vocabulary.build(WORDS)
    assert v.words == ('<rare>', 'the', 'cat', 'a', 'dog', 'bird', 'mouse')
    assert v.counts == (0, 3, 2, 2, 1, 1, 1)
    assert v == vocabulary.from_counts(collections.Counter(WORDS))


def test_rare_words_share_one_symbol():
    v = vocabulary.build(WORDS, min_count=2)
    assert v.words == ('<rare>', 'the', 'cat', 'a') and v.counts[0] == 3
    assert v.encode(['the', 'dog', 'unheard', 'a']).tolist() == [1, 0, 0, 3]
    assert v.encode(WORDS).dtype == np.int32
    assert v.decode([0, 2]) == ['<rare>', 'cat']


NOT_WORDS = ['the jury', b'the jury', [b'the'], [1, 2], np.array([1, 2]), ['the', None], ['the', math.nan], [['the']]]


@pytest.mark.parametrize('words', NOT_WORDS, ids=repr)
def test_what_is_not_a_sequence_of_strings_is_not_read_as_letters_or_rare_words(words):
    with refuses('words'):
        vocabulary.build(WORDS).encode(words)


def test_strings_in_any_iterable_are_words():
    for words in (np.array(['the', 'zzz']), ('the', 'zzz'), iter(['the', 'zzz']), np.array(['the', 'zzz'], object)):
        assert vocabulary.build(WORDS).encode(words).tolist() == [1, 0]


@pytest.mark.parametrize('ids', [[-1], np.array([0, -2]), [7]])
def test_ids_outside_the_vocabulary_are_no_words(ids):
    with pytest.raises(IndexError):
        vocabulary.build(WORDS).decode(ids)


def test_the_largest_vocabulary_counts_the_rare_symbol():
    assert vocabulary.build(WORDS, max_vocabulary=3).words == ('<rare>', 'the', 'cat')


def test_counting_over_train_only():
    corpus = corpora.Corpus(Span(0, 6), Span(6, 8), Span(8, 10), WordStream.from_words(WORDS))
    v = encoding.build_vocabulary(corpus, corpus_settings('text', count_over='train'))
    assert set(v.words) == {'<rare>', 'the', 'cat', 'dog', 'a'}
    assert 'mouse' in encoding.build_vocabulary(corpus, corpus_settings('text')).words


def test_nothing_left_is_refused():
    corpus = corpora.Corpus(Span(0, 6), Span(6, 8), Span(8, 10), WordStream.from_words(WORDS))
    with refuses('corpus.min_count'):
        encoding.build_vocabulary(corpus, corpus_settings('text', min_count=9))


def test_saved_and_loaded(tmp_path):
    v = vocabulary.build([*WORDS, 'naïve', '\u2028', '#', '\x85'])
    vocabulary_files.save(v, tmp_path / 'v.txt')
    assert vocabulary_files.load(tmp_path / 'v.txt') == v


@pytest.mark.parametrize(
    'text,message',
    [
        ('<rare>\t1\nthe 4\n', 'v.txt:2'),
        ('<rare>\t1\nthe\t-4\n', 'v.txt:2'),
        ('the\t4\n', 'v.txt:1'),
        ('<rare>\t1\nthe\t4\nthe\t4\n', 'v.txt:3'),
        ('<rare>\t1\nthe\t4\ndog\t1', 'v.txt:3'),  # cut short: it may have been 12
    ],
)
def test_a_damaged_file_is_named(tmp_path, text, message):
    (tmp_path / 'v.txt').write_text(text)
    with refuses(message):
        vocabulary_files.load(tmp_path / 'v.txt')


def test_words_without_names_are_numbered_from_one_after_the_rare_word():
    numbered = vocabulary.numbered(4)
    assert numbered.words == ('<rare>', 'w1', 'w2', 'w3') and numbered.counts == (1, 1, 1, 1)


@pytest.mark.parametrize('min_count, max_vocabulary', [*itertools.product((1, 2, 3), (0, 4, 5))])
@pytest.mark.parametrize('count_over', ['train', 'all'])
def test_boundary_tokens_have_ids_however_rare_they_are(min_count, max_vocabulary, count_over):
    words = '<text> <p> a b a b a b c d'.split()
    corpus = corpora.Corpus(Span(0, 8), Span(8, 9), Span(9, 10), WordStream.from_words(words))
    choices = {'min_count': min_count, 'max_vocabulary': max_vocabulary, 'count_over': count_over}
    if max_vocabulary == 4:  # no room for two words
        with pytest.raises(BadInput) as caught:
            encoding.build_vocabulary(corpus, corpus_settings('text', **choices))
        assert (caught.value.key, caught.value.value) == ('corpus.max_vocabulary', 4)
        return
    v = encoding.build_vocabulary(corpus, corpus_settings('text', **choices))
    counts = dict(zip(v.words, v.counts))
    assert counts['<text>'] == counts['<p>'] == 1 and counts['a'] == counts['b'] == 3
    assert len(v) <= (max_vocabulary or 7) and v.words[0] == '<rare>'
    counted = 10 if count_over == 'all' else 8
    assert sum(v.counts) == counted and v.counts[0] == counted - sum(v.counts[1:])


def test_a_vocabulary_without_words_blames_the_key_that_left_them_out():
    corpus = corpora.Corpus(Span(0, 6), Span(6, 8), Span(8, 10), WordStream.from_words(['<text>', '<p>', *WORDS]))
    for key, value in (('min_count', 9), ('max_vocabulary', 4)):
        with pytest.raises(BadInput) as caught:
            encoding.build_vocabulary(corpus, corpus_settings('text', **{key: value}))
        assert (caught.value.key, caught.value.value) == (f'corpus.{key}', value)
