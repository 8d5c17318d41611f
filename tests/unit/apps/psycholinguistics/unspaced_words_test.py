"""Tests surprisal in scripts without spaces: words are joined like the training text, or a warning appears."""

import random
import re

import pytest

from configs import text as text_config
from nplm_jax.apps.psycholinguistics import measurement, stimuli
from nplm_jax.config import settings as config_lib
from nplm_jax.data import unspaced_scripts
from nplm_jax.runs import experiment, loading

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')

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


@pytest.fixture(scope='module', params=KINDS)
def trained(request, tmp_path_factory):
    """A model of sentences with uniformly drawn words; the surprisal of a word is log2 of the number of choices."""
    root, rng = tmp_path_factory.mktemp(request.param), random.Random(0)
    is_segmented = request.param in ('segmented', 'whitespace')
    places = [CHOICES[i] for i in (0, 1, 2, 0, 1)]
    lines = [[*map(rng.choice, places), '。'] for _ in range(3000)]
    (root / 'text').write_text(''.join((' ' if is_segmented else '').join(line) + '\n' for line in lines))
    changes = {'model.family': 'modified_kneser_ney', 'model.n': 6, **KINDS[request.param]}
    config = config_lib.override(text_config.get_config(), changes)
    config.corpus.path = str(root / 'text')
    experiment.run(config, root / 'run')
    return loading.load(root / 'run')


def test_chinese_words_have_the_bits_of_their_choices_whatever_the_tokens_are(trained):
    columns = measurement.measure({'net': trained}, found(SENTENCE))
    bits = columns['surprisal_net'][1:6]
    assert bits == pytest.approx([2.6, 2, 1.6, 2.6, 0], abs=1.25)  # with 6, 4, 3, 6 and 1 choices
    assert sum(columns['surprisal_net'][1:5]) == pytest.approx(9.2, abs=1)
    assert unspaced_scripts.describe(trained.vocabulary, [SENTENCE.split()]) == ''


def test_a_sentence_without_blanks_gets_the_recipe(trained):
    warning = unspaced_scripts.describe(trained.vocabulary, [[SENTENCE.replace(' ', '') * 3]])
    if not trained.vocabulary.tokenizer.is_lossless:
        assert re.findall(r'\d+', warning) == ['1', '1']
        assert 'corpus.tokens=whitespace' in warning and 'corpus.tokens=pieces' in warning
    else:
        assert warning.startswith('warning: ')


def test_a_context_with_and_without_blanks_is_one_context(trained):
    if not trained.vocabulary.tokenizer.is_lossless or unspaced_scripts.has_spaces(trained.vocabulary):
        pytest.skip('the training text was segmented')
    texts = '那只 猫 喜欢', '那只猫喜欢'
    columns = [measurement.measure({'net': trained}, found('一个 老师'), measurement.Options(context=t)) for t in texts]
    assert columns[0]['surprisal_net'] == columns[1]['surprisal_net']
    assert columns[0]['starts_after'] == columns[1]['starts_after'] and '␣' not in columns[0]['starts_after'][0]


def test_sentences_without_blanks_are_cut_as_in_a_text(trained):
    if not trained.vocabulary.tokenizer.is_lossless:
        pytest.skip('the tokens are words')
    text = '那只猫喜欢一个老师。 这个狗看见一个孩子。'
    table, _, _ = measurement.cut_items(trained.vocabulary, found(text), measurement.Options())
    assert (
        trained.vocabulary.tokenizer.decode(table.tokens_T)
        == text
        == unspaced_scripts.join(trained.vocabulary, [text])[0]
    )


def test_tokens_that_cross_words_and_words_that_are_unknown_get_the_recipe(trained):
    text = '那 只 猫 喜 欢 一个 老师 。'  # split within words
    warning = unspaced_scripts.describe(trained.vocabulary, [text.split()])
    kind = trained.vocabulary.tokenizer.kind
    if kind == 'whitespace':
        warning = unspaced_scripts.describe(trained.vocabulary, ['鸟 鱼 猫 树'.split()])
        assert re.findall(r'\d+', warning) == ['3', '4']
    elif kind == 'pieces' and not unspaced_scripts.has_spaces(trained.vocabulary):
        assert re.findall(r'\d+', warning) == ['1', '1']
    else:
        assert warning == ''
