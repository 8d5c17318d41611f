"""Tests how a user's text is split into the tokens of a vocabulary."""

import dataclasses

import pytest
from helpers import corpus_settings

from nplm_jax.data.corpora import make_tokenizer
from nplm_jax.data.tokenizers import cutting
from nplm_jax.data.tokenizers.tokenizer import TextChunk
from nplm_jax.data.tokenizers.words import is_punctuation, reading

BROWN = {
    *('the', 'town', 'mr.', 'u.s.', 'well-known', 'cold', 'ice', "don't", "'s", 'dog', "o'clock", '<p>', '<number>'),
    *(',', '.', '``', "''", '--', ';', '?', "'"),
}
CASES = {
    'town': ['town'],
    'Town,': ['town', ','],
    'Mr.': ['mr.'],
    'Mr.,': ['mr.', ','],
    'U.S.".': ['u.s.', "''", '.'],
    '"The': ['``', 'the'],
    'dog."': ['dog', '.', "''"],
    '“Town”': ['``', 'town', "''"],
    "'town'": ["'", 'town', "'"],
    "dog's,": ['dog', "'s", ','],
    'don’t': ["don't"],
    'well-known': ['well-known'],
    'ice-cold': ['ice-cold'],
    'town—the': ['town', '--', 'the'],
    'town--the,': ['town', '--', 'the', ','],
    '--': ['--'],
    '—': ['--'],
    '?!': ['?', '!'],
    '1,990,': ['<number>', ','],
    '<p>': [],
    '</s>.': ['.'],
    '<unk>.': ['<unk>', '.'],
    'the town': ['the', 'town'],
    ' \x1f ': [],
}


def cut(text, known, settings, **choices):
    """Returns the tokens of a user's text."""
    return cutting.tokenize(reading(make_tokenizer(settings), **choices), [text], known)[0]


@pytest.mark.parametrize('word', CASES)
def test_punctuation_is_split_off_words_of_a_corpus_that_separates_it(word):
    settings = corpus_settings('brown', numbers=True)
    assert settings.tokenizer.lowercase and settings.tokenizer.split_possessive
    assert cut(word, BROWN, settings) == CASES[word]


def test_punctuation_stays_at_a_word_that_is_known_with_it_and_where_another_rule_is_asked_for():
    brown = corpus_settings('brown')
    assert cut('dog,', {'dog,', 'dog', ','}, brown) == ['dog,']
    assert cut('dog,', {'dog', ','}, brown) == ['dog', ',']
    assert cut('dog,', {'dog', ','}, brown, tokens='whitespace') == ['dog,']


@pytest.mark.parametrize('text', ['He was `aimable ,', 'dog,', 'He—she', "don't", '“Town” don’t', "dog's <b>"])
@pytest.mark.parametrize('lowercase', [True, False])
def test_the_tokens_of_a_whitespace_corpus_are_never_cut_or_rewritten_again(text, lowercase):
    settings = corpus_settings('text', 'x', tokens='whitespace', split_possessive=False, lowercase=lowercase)
    known = {'He', 'he', 'was', 'aimable', ',', '`', 'dog', 'do', "n't", '--', 'she', "don't", 'Town', 'town', '``'}
    assert cut(text, known, settings) == (text.lower() if lowercase else text).split()


@pytest.mark.parametrize('text', ['dog,', 'Mr.', "don't", 'well-known', '"(a)"', 'a/b', "dog's e\u0301 3.14"])
def test_a_corpus_that_this_program_cut_is_cut_the_same_way(text):
    settings = corpus_settings('text', 'x', boundary_tokens=False)
    stream, *_ = cutting.read_chunk(make_tokenizer(settings), TextChunk(text, True))
    assert cut(text, {'dog', 'mr'}, settings) == stream.words()


def test_up_to_three_marks_stay_at_a_word_that_is_known_with_them():
    text, known = corpus_settings('brown'), {'dog', 'dog...', 'dog....', '---a', '----a', ','}
    assert cut('dog...,', known, text) == ['dog...', ','] and cut('dog....,', known, text) == ['dog...', '.', ',']
    assert cut('---a,', known, text) == ['---a', ','] and cut(',----a,', known, text) == [',', '-', '---a', ',']


def test_a_contraction_is_cut_where_the_vocabulary_has_its_parts():
    text = corpus_settings('brown', split_possessive=False)
    assert cut("Don't", {'do', "n't", 'we', "'ll"}, text) == ['do', "n't"]
    assert cut('we’ll.', {'do', "n't", 'we', "'ll", '.'}, text) == ['we', "'ll", '.']
    assert cut("don't", {'we', "'ll"}, text) == ["don't"]


def test_hyphens_are_cut_on_demand_if_the_parts_are_known():
    brown = corpus_settings('brown')
    assert cut('Ice-cold,', BROWN, brown, hyphens='split') == ['ice', 'cold', ',']
    assert cut('well-known', BROWN, brown, hyphens='split') == ['well-known']
    assert cut('ice-blue', BROWN, brown, hyphens='split') == ['ice-blue']
    assert cut('ice-cold', {*BROWN, '-'}, brown, hyphens='split') == ['ice', '-', 'cold']
    assert cut('ice-cold-town', BROWN, brown, hyphens='split') == ['ice', 'cold', 'town']
    assert cut('—ice-cold"', BROWN, brown, hyphens='split') == ['--', 'ice', 'cold', "''"]


def test_a_proper_noun_loses_its_comma_first():
    settings, known = corpus_settings('brown', proper_nouns=True), {'<proper>', 'the', ','}
    assert cut('Smith,', known, settings) == ['<proper>', ',']
    assert cut('The', known, settings) == ['the'] and cut('smith', known, settings) == ['smith']


def test_a_proper_noun_of_the_corpus_is_one_even_if_its_word_is_known():
    learned = dataclasses.replace(make_tokenizer(corpus_settings('text', 'x', proper_nouns=True)), names=('bush',))
    assert cutting.tokenize(learned, ['Bush saw a bush'], {'bush', 'saw', 'a'}) == [['<proper>', 'saw', 'a', 'bush']]


def test_symbols_with_a_meaning_are_no_punctuation():
    assert [is_punctuation(token) for token in ('.', '``', '...', '$', '<p>', "'s", '7')] == [True] * 3 + [False] * 4


def test_texts_are_cut_as_their_words_are():
    settings = corpus_settings('brown')
    texts = ['  ', *CASES, ' '.join(CASES), f'{next(iter(CASES))}  \n{next(iter(CASES))}']
    together = cutting.tokenize(make_tokenizer(settings), texts, BROWN)
    assert together == [[t for word in text.split() for t in cut(word, BROWN, settings)] for text in texts]
