"""Tests that exported Hugging Face tokenizers give the same tokens as this package."""

import pytest
from helpers import corpus_settings

from nplm_jax.apps.export.word_tokenizers import special_tokens, word_tokenizer
from nplm_jax.data import vocabulary
from nplm_jax.data.corpora import make_tokenizer
from nplm_jax.data.tokenizers import cutting
from nplm_jax.data.tokenizers.words import reading

TEXT = (
    "The Dog's well-known 3.14, 1990's don’t-say “it”\t(50% off)\n\n21st -3 $5 9:30 U.S. e\u0301 a_b x.1 1.x 5-a <p>"
    ' <s> <p> </s> İİ'
    " dog’s `` x '' 中文 state-of-the-art the dog \" ' , . x<p>. <rare>s <pad>"
    ' ΟΔΟΣ, Σ ΣΑΣ λόγοΣ ΑΣ-ΒΣ'
    ' می\u200cخواهم رفت क्\u200dष 5\u200cth \u200d7 7-\u200c \u200c'
    ' the\x1cdog 7\x1f \x85 \ufeffthe'
)


@pytest.mark.parametrize(
    'name, tokens', [('text', 'words'), ('text', 'whitespace'), ('text', 'lmplz'), ('brown', 'words')]
)
@pytest.mark.parametrize(
    'choices', [(True, True, True), (False, True, False), (True, False, True), (False, False, False)]
)
def test_the_tokenizer_cuts_a_text_as_ours_does(name, tokens, choices):
    pytest.importorskip('tokenizers', reason='pip install tokenizers')
    keys = dict(zip(('lowercase', 'split_possessive', 'numbers'), map(bool, choices)))
    settings = corpus_settings(name, tokens=tokens, **keys)
    kind = '' if name == 'text' else 'whitespace'  # text that is already tokenized
    ours = make_tokenizer(settings)
    (cut,) = cutting.tokenize(reading(ours, kind), [TEXT], ())
    for unused in ('‘’“”', '\'"`“”', '’‘"“”', ''):  # straight, curly and Brown's quotation marks, and all of them
        kept = (word for word in cut if not set(word) & set(unused) and word != '<pad>')
        words = vocabulary.build(['<p>', *kept])
        tokenizer = word_tokenizer(ours, words.ids)
        text = TEXT if unused else TEXT.replace("''", '').replace('``', '')
        (expected,) = cutting.tokenize(reading(ours, kind), [text], words.ids)
        assert tokenizer.encode(text).ids == words.encode(expected).tolist()


@pytest.mark.parametrize('tokens', ['words', 'whitespace', 'lmplz'])
@pytest.mark.parametrize('mark', ['<p>', '<rare>'])
def test_the_mark_that_a_caller_puts_before_or_after_a_text_is_kept(tokens, mark):
    pytest.importorskip('tokenizers', reason='pip install tokenizers')
    words = vocabulary.build([mark, 'a', 'b'])
    tokenizer = word_tokenizer(make_tokenizer(corpus_settings('text', tokens=tokens)), words.ids)
    for text, expected in [('a b', 'a b'), ('a <p> b', 'a b'), (f'{mark}a b', f'{mark} a b'), (mark, mark)]:
        assert tokenizer.encode(text).tokens == expected.split()
        assert mark == '<rare>' or tokenizer.encode(f'{text}<p>').tokens == [*expected.split(), '<p>']


def test_a_text_without_marks_begins_after_the_rare_word():
    assert special_tokens({'a', 'b'})['bos_token'] == '<rare>'


def test_the_padding_token_is_outside_the_vocabulary():
    assert special_tokens({'<rare>', 'a'})['pad_token'] == '<pad>'
    assert special_tokens({'<rare>', '<pad>'})['pad_token'] not in ('<rare>', '<pad>')
