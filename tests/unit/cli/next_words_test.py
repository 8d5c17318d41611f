"""Tests the most likely next words, and the start of a line."""

import functools
import json
import math

import pytest
from helpers import numbers

from nplm_jax.cli import __main__ as cli
from nplm_jax.runs import command_models as loaded_models
from nplm_jax.runs import loading

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')


@pytest.fixture
def call(nplm_command):
    return functools.partial(nplm_command, 'next')


def test_the_likeliest_next_words_with_each_model_beside(folders, call):
    pair = folders / 'network', folders / 'counts'
    (header, _, first, second), stderr = call(*pair, '--count=2', '--prompt=yyy i love')
    assert header.split() == ['|', 'next', 'word', '|', 'mixture', '|', 'network', '|', 'counts', '|']
    word, *p = [c.strip() for c in first.strip('|').split('|')]
    assert word == 'coffee' and float(p[0]) == pytest.approx((float(p[1]) + float(p[2])) / 2, abs=5e-3)
    assert float(second.split('|')[2]) < float(p[0])
    (note,) = stderr
    assert numbers(note) == ['1', '3', '33.3'] and note.endswith(': yyy')
    assert call(pair[0], '--count=1', '--prompt=i hate')[0][0].count('|') == 3


def test_small_probabilities_keep_their_digits(folders, call):
    (output,), _ = call(folders / 'network', '--count=99', '--prompt=i like', '--json')
    exact = {entry['word']: entry['p']['network'] for entry in json.loads(output)['next']}
    rows, _ = call(folders / 'network', '--count=99', '--prompt=i like')
    shown = dict([c.strip() for c in row.strip('|').split('|')] for row in rows[2:])
    assert sum(exact.values()) == pytest.approx(1, abs=1e-5) and min(exact.values()) < 1e-3
    assert all(float(shown[word]) == pytest.approx(p, rel=5e-3) for word, p in exact.items())


@pytest.mark.parametrize('prompt, context', [('', ['<p>']), ('i', ['<p>', 'i']), ('<p> i', ['<p>', 'i'])])
def test_a_prompt_starts_after_the_paragraph_mark(folders, call, prompt, context):
    loaded = loading.load(folders / 'network')
    words, model = loaded.vocabulary, loaded.model
    (output,), _ = call(folders / 'network', '--count=99', f'--prompt={prompt}', '--json')
    log_p_V = model.next_word(words.encode(context)[None])[0]
    for entry in json.loads(output)['next']:
        assert math.log(entry['p']['network']) == pytest.approx(log_p_V[words.ids[entry['word']]], abs=1e-4)


def test_a_prompt_starts_after_nothing_where_the_corpus_has_no_marks(folders):
    models = loaded_models.load_models([str(folders / 'other')])
    assert models.encode_prompt(['other']).tolist() == [models.vocabulary.ids['other']]
    assert models.encode_prompt([]).tolist() == []


@pytest.mark.parametrize(
    'arguments, message',
    [
        (['--count=0'], '--count=0:'),
        (['--prompt=zzz'], "--prompt='zzz':"),
    ],
)
def test_one_clear_line_and_exit_code_two(folders, lines, arguments, message):
    with pytest.raises(SystemExit) as stop:
        cli.main(['next', str(folders / 'network'), *arguments])
    (line,) = lines()[1]
    assert stop.value.code == 2 and line.startswith(message)
