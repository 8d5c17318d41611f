"""How the words of an experiment are cut into tokens."""

import pytest
from helpers import corpus_settings

from nplm_jax.data.tokenization import paragraphs, tokenize
from nplm_jax.data.word_tokens import WordCutter, is_punctuation, tokenize_prompt

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
    '<p>': ['<p>'],
    'the town': ['the', 'town'],
    ' \x1f ': [],
}


@pytest.mark.parametrize('word', CASES)
def test_punctuation_is_split_off_words_of_a_corpus_that_separates_it(word):
    settings = corpus_settings('brown', numbers=True)
    assert settings.lowercase and settings.split_possessive
    assert WordCutter(settings, BROWN).cut(word) == CASES[word]


def test_a_corpus_that_leaves_punctuation_at_its_words_has_it_there():
    text = corpus_settings('text', 'x', tokens='whitespace')
    assert WordCutter(text, {'dog,', 'dog', ','}).cut('dog,') == ['dog,']
    assert WordCutter(text, {'dog', ','}).cut('dog,') == ['dog', ',']
    assert WordCutter(text, {'dog', ','}, 'whitespace').cut('dog,') == ['dog,']


@pytest.mark.parametrize('text', ['dog,', 'Mr.', "don't", 'well-known', '"(a)"', 'a/b', "dog's e\u0301 3.14"])
def test_a_corpus_that_this_program_cut_is_cut_the_same_way(text):
    settings = corpus_settings('text', 'x', boundary_tokens=False)
    expected = tokenize(paragraphs(text, settings.tokens), settings).words()
    assert tokenize_prompt(text, settings, {'dog', 'mr'}) == expected


def test_up_to_three_marks_stay_at_a_word_that_is_known_with_them():
    cutter = WordCutter(
        corpus_settings('text', 'x', tokens='whitespace'), {'dog', 'dog...', 'dog....', '---a', '----a', ','}
    )
    assert cutter.cut('dog...,') == ['dog...', ','] and cutter.cut('dog....,') == ['dog...', '.', ',']
    assert cutter.cut('---a,') == ['---a', ','] and cutter.cut(',----a,') == [',', '-', '---a', ',']


def test_a_contraction_is_cut_where_the_vocabulary_has_its_parts():
    text = corpus_settings('text', 'x', tokens='whitespace', split_possessive=False)
    assert WordCutter(text, {'do', "n't", 'we', "'ll"}).cut("Don't") == ['do', "n't"]
    assert WordCutter(text, {'do', "n't", 'we', "'ll", '.'}).cut('we’ll.') == ['we', "'ll", '.']
    assert WordCutter(text, {'we', "'ll"}).cut("don't") == ["don't"]


def test_hyphens_are_cut_on_demand_if_the_parts_are_known():
    cutter = WordCutter(corpus_settings('brown'), BROWN, splits_hyphens=True)
    assert cutter.cut('Ice-cold,') == ['ice', 'cold', ',']
    assert cutter.cut('well-known') == ['well-known'] and cutter.cut('ice-blue') == ['ice-blue']
    assert WordCutter(corpus_settings('brown'), {*BROWN, '-'}, splits_hyphens=True).cut('ice-cold') == [
        'ice',
        '-',
        'cold',
    ]


def test_a_chain_of_known_words_is_cut_at_each_hyphen():
    cutter = WordCutter(corpus_settings('brown'), BROWN, splits_hyphens=True)
    assert cutter.cut('ice-cold-town') == ['ice', 'cold', 'town']


def test_a_proper_noun_loses_its_comma_first():
    settings = corpus_settings('brown', proper_nouns=True)
    cutter = WordCutter(settings, {'<proper>', 'the', ','})
    assert (
        cutter.cut('Smith,') == ['<proper>', ','] and cutter.cut('The') == ['the'] and cutter.cut('smith') == ['smith']
    )


def test_symbols_with_a_meaning_are_no_punctuation():
    assert [is_punctuation(token) for token in ('.', '``', '...', '$', '<p>', "'s", '7')] == [True] * 3 + [False] * 4


def test_texts_are_cut_as_their_words_are():
    cutter = WordCutter(corpus_settings('brown'), BROWN)
    texts = ['  ', *CASES, ' '.join(CASES), f'{next(iter(CASES))}  \n{next(iter(CASES))}']
    assert cutter.cut_texts(texts) == [[t for word in text.split() for t in cutter.cut(word)] for text in texts]
