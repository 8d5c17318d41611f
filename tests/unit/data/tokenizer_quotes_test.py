"""Tests the conversion of quotation marks to those in the vocabulary, and of tokens to ordinary text."""

import pytest

from nplm_jax.data.tokenizers.words import WordTokenizer, match_quotes


def test_a_curly_apostrophe_becomes_the_straight_one_of_the_vocabulary_and_the_other_way_round():
    assert [match_quotes(word, {"don't", "'s", '"'}) for word in ['don’t', '’s', '“']] == ["don't", "'s", '"']
    assert [match_quotes(word, {'don’t', '’s'}) for word in ["don't", "'s"]] == ['don’t', '’s']


def test_browns_quotation_marks():
    assert [match_quotes(word, {'``', "''", 'no'}) for word in ['“', 'no', '”']] == ['``', 'no', "''"]


def test_words_of_the_vocabulary_and_unknown_words_stay_as_they_are():
    known = {"it's", 'it’s', '"', '“'}
    assert [match_quotes(word, known) for word in ["it's", 'it’s', '“', 'it’d']] == ["it's", 'it’s', '“', 'it’d']


@pytest.mark.parametrize(
    'tokens, text',
    [
        ("kate 's arm .", "kate's arm."),
        ("`` no , '' he said .", '"no," he said.'),
        ('" yes " ! ( or not ) ; 3.5 %', '"yes"! (or not); 3.5%'),
        ('<p> one . <p> two , three <text> <p> four', 'one.\ntwo, three\nfour'),
        ('who ? ? she said ; ; no', 'who? she said; no'),
        ('<rare> said', '<rare> said'),
        ('', ''),
    ],
)
def test_tokens_become_ordinary_text(tokens, text):
    assert WordTokenizer().decode(tokens.split(), clean_up=True) == text
