"""Tests that a text without spaces between words is joined like the training text, or a warning appears."""

import dataclasses

import pytest
from helpers import refuses

from nplm_jax.data import unspaced_scripts
from nplm_jax.data.tokenizers import cutting
from nplm_jax.data.tokenizers.byte_level import ByteTokenizer
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.data.vocabulary import Vocabulary, build

SENTENCE = '那只 猫 喜欢 一个 老师 。'
THAI = 'มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์ และสิทธิ'


def count(text):
    """Returns a vocabulary of bytes with their counts in a text."""
    tokens = ByteTokenizer().tokens
    read = cutting.tokenize(ByteTokenizer(), [text])[0]
    return Vocabulary(tokens, tuple(map(read.count, tokens)), ByteTokenizer())


JOINED = {  # a bar where there is no blank
    '那只 猫 喜欢 。': '那只|猫|喜欢|。',
    'The dog , 3 cats " ran " .': 'The dog , 3 cats " ran " .',
    '“ 他 用 iPhone 在 3 月 。 ”': '“|他|用 iPhone 在|3|月|。|”',
    '私 は コーヒー ， です': '私|は|コーヒー|，|です',
    'มนุษย์ เกิด มา': 'มนุษย์|เกิด|มา',
    '사람 은 dog': '사람 은 dog',
}


@pytest.mark.parametrize('text', JOINED)
def test_no_blank_stands_between_words_of_scripts_that_have_none(text):
    joined, _ = unspaced_scripts.find_joined(count(text.replace(' ', '')), [text.split()])
    words = text.split()
    assert ''.join(('|' if joins else ' ') + word for joins, word in zip(joined, words))[1:] == JOINED[text]


def test_the_first_word_joins_the_context():
    words = count(SENTENCE.replace(' ', ''))
    assert unspaced_scripts.find_joined(words, [['猫', 'dog']], '那只') == ([True, False], [False, False])
    assert unspaced_scripts.find_joined(words, [['猫', 'dog']], 'the') == ([False, False], [False, False])
    assert unspaced_scripts.find_joined(words, [['dog', '猫']]) == ([False, False], [False, True])


@pytest.mark.parametrize(
    'text,has_spaces',
    [
        (SENTENCE, True),
        (SENTENCE.replace(' ', ''), False),
        ('มนุษย์ ทั้งหลาย เกิด มา มี อิสระ และ เสมอภาค กัน', True),
        ('มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์ และสิทธิ', False),
        ('ﾜﾀｼﾊ ｶﾞｸｾｲ ﾃﾞｽ', True),  # half-width forms
        ('All human beings are born free 人人生而自由 and equal in rights 在尊严和权利上一律平等', False),
        ('All human beings are born free 人人 生 而 自由 and equal in rights 在 尊严 和 权利 上 一律 平等', True),
    ],
)
def test_the_training_text_tells_whether_it_was_segmented(text, has_spaces):
    assert unspaced_scripts.has_spaces(count(text)) == has_spaces


TEXTS = {  # as they are tokenized if the training text was not segmented
    '那只 猫 喜欢 。': '那只猫喜欢。',
    '那只猫 喜欢 ': '那只猫喜欢',
    '他 用 iPhone 打 电话': '他用 iPhone 打电话',
    'The  old dog .': 'The  old dog .',
    'この 犬 は\n白い': 'この犬は\n白い',
    'มนุษย์ เกิด มา': 'มนุษย์เกิดมา',
    THAI: THAI,  # a blank between phrases stays
    '사람 은 dog': '사람 은 dog',
    '': '',
}


@pytest.mark.parametrize('text', TEXTS)
def test_a_text_is_joined_as_the_training_text_is(text):
    assert unspaced_scripts.join(count(SENTENCE.replace(' ', '')), [text]) == [TEXTS[text]]
    assert unspaced_scripts.join(count(SENTENCE), [text]) == [text]
    assert unspaced_scripts.join(build(SENTENCE.split()), [text]) == [text]
    assert unspaced_scripts.join(count(SENTENCE.replace(' ', '')), [TEXTS[text]]) == [TEXTS[text]]


@pytest.mark.parametrize('training', [SENTENCE, SENTENCE.replace(' ', '')])
@pytest.mark.parametrize('text', [text for text in TEXTS if text])
def test_the_words_of_an_item_are_joined_as_those_of_a_text(text, training):
    vocabulary, words = count(training), text.split()
    joined, _ = unspaced_scripts.find_joined(vocabulary, [words])
    made = ''.join(word if joins else f' {word}' for joins, word in zip(joined, words))
    assert [made[1:]] == unspaced_scripts.join(vocabulary, [' '.join(words)])


@pytest.mark.parametrize('training', [SENTENCE, SENTENCE.replace(' ', '')])
def test_tokens_of_a_plug_in_may_have_any_letters(training):
    class Letters(WordTokenizer):
        is_lossless = True

        def utf8(self, token):
            return token.encode()

    vocabulary = dataclasses.replace(build([*training]), tokenizer=Letters())
    assert unspaced_scripts.join(vocabulary, [SENTENCE]) == [training]


def test_the_blanks_of_all_lines_tell_whether_a_text_is_segmented():
    vocabulary = count(THAI)
    assert unspaced_scripts.join(vocabulary, ['แมว หมา', THAI * 3]) == ['แมว หมา', THAI * 3]
    assert unspaced_scripts.join(vocabulary, ['แมว หมา', 'dog cat']) == ['แมวหมา', 'dog cat']


SEGMENTED, PHRASES = build(SENTENCE.split()), build('那只猫喜欢一个老师。 我看见那个孩子了。'.split())


@pytest.mark.parametrize(
    'vocabulary,text,warning',
    [
        (SEGMENTED, SENTENCE, ''),
        (SEGMENTED, 'The dog sleeps', ''),
        (SEGMENTED, '那只猫 猫', ''),  # one of the two is unknown
        (SEGMENTED, '那只猫', '1 of 1 words in scripts without spaces are unknown; segment'),
        (
            PHRASES,
            '那只猫喜欢一个老师。',
            'the training text has almost no spaces, so each phrase is treated as one word',
        ),
        (count(SENTENCE), SENTENCE, ''),
        (count(SENTENCE), '猫', ''),
        (count(SENTENCE), '那只猫喜欢一个老师。', 'this text has almost no spaces, but the training text was'),
        (count(SENTENCE.replace(' ', '')), '那只猫喜欢一个老师。', ''),
        (build('a dog sleeps'.split()), '猫 dog sleeps', '1 of 1 words in scripts without spaces are unknown; segment'),
    ],
)
def test_a_text_that_is_cut_otherwise_than_the_training_text_gets_a_warning(vocabulary, text, warning):
    found = unspaced_scripts.describe_text(vocabulary, [text])
    assert found.startswith(f'warning: {warning}') if warning else found == ''


@pytest.mark.parametrize(
    'item,warns', [('นักเรียน คนนี้', True), ('มนุษย์ ทั้งหลาย เกิด มา', False), ('a 猫 and a 狗 ' * 9, False)]
)
def test_phrases_that_are_measured_as_words_get_a_warning(item, warns):
    assert ('each phrase' in unspaced_scripts.describe(count(THAI), [item.split()])) == warns


def test_a_text_without_a_known_word_is_refused_with_what_is_allowed():
    with refuses('--prompt'):
        unspaced_scripts.check_known(SEGMENTED, ['那只猫'], '--prompt')
    for vocabulary, text in ((SEGMENTED, '那只猫 猫'), (SEGMENTED, 'dog'), (SEGMENTED, '，'), (count('猫'), '狗')):
        unspaced_scripts.check_known(vocabulary, [text], '--prompt')
