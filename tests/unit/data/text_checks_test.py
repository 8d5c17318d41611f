"""Tests notes about a text: whether each line is a paragraph, and whether spaces or known words are rare."""

import random
import textwrap

import pytest

from nplm_jax.config.sections import CorpusSettings
from nplm_jax.data import text_checks

WORDS = 'the jury said that it was over and an old man in the city court would not like what it had done'.split()


def sentences(count, end=' .'):
    rng = random.Random(1)
    return [' '.join(rng.choices(WORDS, k=rng.randint(3, 30))) + end for _ in range(count)]


@pytest.mark.parametrize('end', [' .', '.', '!"', ''])  # without an end, the line lengths decide
def test_a_sentence_a_line_is_recognised(end):
    assert text_checks.has_line_paragraphs(['\n'.join(sentences(50, end)) + '\n'])


@pytest.mark.parametrize(
    'text',
    [
        '\n'.join(textwrap.wrap(' '.join(sentences(50)), 70)),
        '\n\n'.join(sentences(50)),
        '\n'.join(sentences(50)) + '\n\n' + sentences(1)[0],
        '\n'.join(sentences(9)),
        '\n'.join(' '.join(sentences(50)).split()),
        '\n'.join(sentences(50, ' and hy-')),
        ' '.join(sentences(50)),
        '',
    ],
    ids=['wrapped', 'blank lines', 'one blank line', 'few lines', 'a word a line', 'hyphens', 'one line', 'empty'],
)
def test_other_texts_are_not_taken_for_a_sentence_a_line(text):
    assert not text_checks.has_line_paragraphs([text])


@pytest.mark.parametrize(
    'text, is_told',
    [
        ('我喜欢狗，我爱咖啡，我讨厌牛奶，今天天气很好。', True),
        ('Die Donaudampfschifffahrtsgesellschaft beschäftigt Kapitäne', False),
        ('well-known', False),
        ('', False),
    ],
)
def test_a_text_with_almost_no_blanks_is_told(text, is_told):
    assert bool(text_checks.describe_whitespace([text, ''])) == is_told


def test_words_of_a_text_that_is_told_are_not_counted():
    assert text_checks.has_words(170, 1000) and text_checks.has_words(1, 19)
    assert not text_checks.has_words(40, 1000) and not text_checks.has_words(0, 10)


def test_a_few_percent_of_unknown_words_are_no_warning():
    assert not text_checks.describe_oov(0.05)
    assert '24 of 29' not in text_checks.describe_oov(24 / 29) and '82.8%' in text_checks.describe_oov(24 / 29)


@pytest.mark.parametrize('share', [0.06, 0.9])
@pytest.mark.parametrize(
    'changes, advice',
    [
        (None, ''),  # an ARPA file
        ({}, ''),
        ({'min_count': 4}, 'min_count'),
        ({'max_vocabulary': 11}, ''),  # the vocabulary has 10 words
        ({'min_count': 4, 'max_vocabulary': 10}, 'max_vocabulary'),
    ],
)
def test_a_warning_of_unknown_words_names_what_made_them_unknown(share, changes, advice):
    corpus = None if changes is None else CorpusSettings(**changes)
    warning = text_checks.describe_oov(share, corpus=corpus, vocabulary_size=10)
    assert all(word in warning for word in ('same vocabulary', 'case', 'punctuation')) and '\n' not in warning
    keys = {'min_count', 'max_vocabulary', 'tokens=pieces'}
    assert {key for key in keys if f'corpus.{key}' in warning} == ({advice, 'tokens=pieces'} if advice else set())
