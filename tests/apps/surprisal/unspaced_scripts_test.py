"""Words of scripts without blanks between words: joined as the text joins them, or a warning says what to do."""

import random

import pytest

from configs import text as text_config
from nplm_jax import parts
from nplm_jax.apps.surprisal import measurement, stimuli, unspaced_scripts
from nplm_jax.data.tokenizers.byte_level import ByteTokenizer
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.runs import experiment, loading

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.models.ngram.kneser_ney.DiscountWarning')

KINDS = {
    'characters': {'corpus.tokens': 'characters'},
    'bytes': {'corpus.tokens': 'bytes'},
    'pieces': {'corpus.tokens': 'pieces', 'corpus.pieces': 310},
    'segmented': {'corpus.tokens': 'pieces', 'corpus.pieces': 310},
    'whitespace': {'corpus.tokens': 'whitespace'},
}
CHOICES = (('那只', '这个', '一个'), ('猫', '狗', '老师', '学生', '孩子', '朋友'), ('喜欢', '看见', '讨厌', '帮助'))
SENTENCE = '那只 猫 喜欢 一个 老师 。'


def found(text):
    return stimuli.from_text(text, 'text')


def count(text):
    """Returns the vocabulary of bytes with their counts in a text."""
    tokens = ByteTokenizer().tokens
    read = ByteTokenizer().tokenize([text])[0]
    return Vocabulary(tokens, tuple(map(read.count, tokens)), ByteTokenizer())


@pytest.fixture(scope='module', params=KINDS)
def trained(request, tmp_path_factory):
    """A model of sentences whose words are drawn uniformly: bits of a word are log2 of the number of choices."""
    root, rng = tmp_path_factory.mktemp(request.param), random.Random(0)
    is_segmented = request.param in ('segmented', 'whitespace')
    places = [CHOICES[i] for i in (0, 1, 2, 0, 1)]
    lines = [[*map(rng.choice, places), '。'] for _ in range(3000)]
    (root / 'text').write_text(''.join((' ' if is_segmented else '').join(line) + '\n' for line in lines))
    changes = {'model.family': 'modified_kneser_ney', 'model.n': 6, **KINDS[request.param]}
    config = parts.override(text_config.get_config(), changes)
    config.corpus.path = str(root / 'text')
    experiment.run(config, root / 'run')
    return loading.load(root / 'run')


def test_chinese_words_have_the_bits_of_their_choices_whatever_the_tokens_are(trained):
    columns = measurement.measure({'net': trained}, found(SENTENCE))
    bits = columns['surprisal_net'][1:6]
    assert bits == pytest.approx([2.6, 2, 1.6, 2.6, 0], abs=1.25)  # of 6, 4, 3, 6 and 1 choices
    assert sum(columns['surprisal_net'][1:5]) == pytest.approx(9.2, abs=1)
    assert unspaced_scripts.describe(trained[1], found(SENTENCE)) == ''


def test_a_sentence_without_blanks_gets_the_recipe(trained):
    warning = unspaced_scripts.describe(trained[1], found(SENTENCE.replace(' ', '') * 3))
    assert warning.startswith('warning: almost no blanks') and 'corpus.tokens=whitespace' in warning


def test_tokens_that_cross_words_and_words_that_are_unknown_get_the_recipe(trained):
    text = '那 只 猫 喜 欢 一个 老师 。'  # cut in the middle of words
    warning = unspaced_scripts.describe(trained[1], found(text))
    kind = trained[1].tokenizer.kind
    if kind == 'whitespace':
        warning = unspaced_scripts.describe(trained[1], found('鸟 鱼 猫 树'))
        assert warning.startswith('warning: 3 of 4 words without blanks are unknown: segment the training text')
    elif kind == 'pieces' and not unspaced_scripts.has_blanks(trained[1]):
        assert warning.startswith('warning: in 1 of 1 items the tokens of the text cross words')
    else:
        assert warning == ''


JOINED = {  # a bar where no blank stands
    '那只 猫 喜欢 。': '那只|猫|喜欢|。',
    'The dog , 3 cats " ran " .': 'The dog , 3 cats " ran " .',
    '“ 他 用 iPhone 在 3 月 。 ”': '“|他|用 iPhone 在|3|月|。|”',
    '私 は コーヒー ， です': '私|は|コーヒー|，|です',
    'มนุษย์ เกิด มา': 'มนุษย์|เกิด|มา',
    '사람 은 dog': '사람 은 dog',
}


@pytest.mark.parametrize('text', JOINED)
def test_no_blank_stands_between_words_of_scripts_that_have_none(text):
    joined, _ = unspaced_scripts.find_joined(count(text.replace(' ', '')), found(text))
    words = text.split()
    assert ''.join(('|' if joins else ' ') + word for joins, word in zip(joined, words))[1:] == JOINED[text]


def test_the_first_word_joins_the_context():
    words = count(SENTENCE.replace(' ', ''))
    assert unspaced_scripts.find_joined(words, found('猫 dog'), '那只') == ([True, False], [False, False])
    assert unspaced_scripts.find_joined(words, found('猫 dog'), 'the') == ([False, False], [False, False])
    assert unspaced_scripts.find_joined(words, found('dog 猫')) == ([False, False], [False, True])


@pytest.mark.parametrize(
    'text,has_blanks',
    [
        (SENTENCE, True),
        (SENTENCE.replace(' ', ''), False),
        ('มนุษย์ ทั้งหลาย เกิด มา มี อิสระ และ เสมอภาค กัน', True),
        ('มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์ และสิทธิ', False),
        ('All human beings are born free 人人生而自由 and equal in rights 在尊严和权利上一律平等', False),
        ('All human beings are born free 人人 生 而 自由 and equal in rights 在 尊严 和 权利 上 一律 平等', True),
    ],
)
def test_the_training_text_tells_whether_it_was_segmented(text, has_blanks):
    assert unspaced_scripts.has_blanks(count(text)) == has_blanks
