"""Tests re-ranking of n-best lists in the formats of Moses and Kaldi, with given or tuned weights."""

import argparse
import io
import json
import math
import sys

import numpy as np
import pytest
from helpers import check_unknown_words

from nplm_jax.apps.decoding import nbest
from nplm_jax.cli import __main__ as cli

# The network prefers `i like dog`; the scores in the file are right only for the second and the third list.
MOSES = """0 ||| i like dog ||| LM= -9
0 ||| i dog ||| LM= -1
1 ||| i love coffee ||| LM= -2
1 ||| coffee i i ||| LM= -1"""
KALDI = 'u-a-1 i like dog\nu-a-2 i dog\nu-b-1 i love coffee\nu-b-2\n'
COSTS = 'u-a-1 9\nu-a-2 1\nu-b-2 7\nu-b-1 2\n'


@pytest.fixture
def score(monkeypatch, lines, folders, tmp_path):
    """Returns a function that runs `nplm rescore` with the network on files in a folder and returns its output."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'costs.txt').write_text(COSTS)
    (tmp_path / 'references').write_text('i dog\ni love coffee\n')
    (tmp_path / 'text').write_text('u-b i love coffee\nu-a i dog\n')

    def call(text, *arguments):
        lines()
        monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(text.encode())))
        cli.main(['rescore', str(folders / 'network'), *map(str, arguments)])
        return lines()

    return call


def test_each_word_adds_its_weight(score):
    (with_weight, *_), _ = score(MOSES, '--word_weight=-100')
    *_, log10_p, total = with_weight.split(' ||| ')
    assert with_weight.startswith('0 ||| i dog ||| ') and float(total) == pytest.approx(float(log10_p) - 200)
    (without, *_), _ = score(MOSES)
    assert without.startswith('0 ||| i like dog') and without.count(' ||| ') == 3


def test_kaldis_lists_are_ranked_with_costs_from_files(score):
    assert score(KALDI, '--format=kaldi')[0] == ['u-a-1 i like dog', 'u-a-2 i dog', 'u-b-2', 'u-b-1 i love coffee']
    flags = '--format=kaldi', '--score_files=costs.txt', '--score_weights=-100'
    assert score(KALDI, *flags)[0] == ['u-a-2 i dog', 'u-a-1 i like dog', 'u-b-1 i love coffee', 'u-b-2']
    twice = '--format=kaldi', '--score_files=costs.txt,costs.txt', '--score_weights=0,-100'
    assert score(KALDI, *twice)[0] == score(KALDI, *flags)[0]
    (line,), _ = score(KALDI, *flags, '--json')
    first, *_ = json.loads(line)['alternatives']
    assert (first['id'], first['fields'], first['total']) == ('u-a', ['2'], pytest.approx(first['log10_p'] - 100))


@pytest.mark.parametrize(
    'text, flags',
    [
        (MOSES, ['--tune=references']),
        (KALDI, ['--tune=text', '--format=kaldi', '--score_files=costs.txt']),
    ],
)
def test_tuned_weights_put_the_references_first(text, flags, score):
    pytest.importorskip('rapidfuzz')
    (weights,), (gains,) = score(text, *flags)
    assert weights.startswith('--model_weight=') and gains
    again = [flag for flag in flags if not flag.startswith('--tune')]
    ranked, _ = score(text, *again, *weights.split())
    assert 'i dog' in ranked[0] and 'i love' in ranked[2]


def test_tuning_is_refused_before_the_scoring_if_rapidfuzz_is_missing(score, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, 'rapidfuzz.distance', None)
    monkeypatch.setattr('nplm_jax.apps.decoding.rescore.load_models', None)
    with pytest.raises(SystemExit) as stop:
        score(MOSES, '--tune=references')
    assert stop.value.code == 2 and capsys.readouterr().err.startswith('rapidfuzz: ')


def test_json_has_the_weights_and_the_errors(score):
    pytest.importorskip('rapidfuzz')
    (line,), stderr = score(MOSES, '--tune=references', '--json')
    tuned = json.loads(line)
    assert list(tuned) == ['model', 'word', 'scores', 'errors'] and len(tuned['scores']) == 1
    assert tuned['errors']['tuned'] == tuned['errors']['oracle'] == 0 and not stderr
    assert tuned['errors']['1-best'] == pytest.approx(1 / 5)


IMPOSSIBLE = [('0', 'a b', -3.0), ('0', 'a z', -np.inf), ('1', 'c', -2.0), ('1', 'd', -1.0), ('1', 'z', -np.inf)]


@pytest.mark.filterwarnings('error')
def test_an_impossible_alternative_comes_last():
    pytest.importorskip('rapidfuzz')
    references = {'0': ['a', 'b'], '1': ['c']}
    alternatives = [nbest.Alternative((key, words), (), references[key]) for key, words, _ in IMPOSSIBLE]
    log10_p = [p for *_, p in IMPOSSIBLE]
    weights, errors = nbest.tune(alternatives, log10_p)
    assert weights.model > 0 and errors['tuned'] == errors['LM only'] == pytest.approx(1 / 3)
    ranked = nbest.rank(alternatives, log10_p, weights)
    assert [a.words for a in ranked] == ['a b', 'a z', 'd', 'c', 'z']
    assert all(math.isfinite(a.total) for a in ranked) and ranked[1].log10_p == -np.inf


def test_without_the_model_an_impossible_alternative_is_ranked_by_its_scores():
    alternatives = [nbest.Alternative(('0', words), (score,)) for words, score in (('a', 1), ('z', 3), ('b', 2))]
    ranked = nbest.rank(alternatives, [-1, -np.inf, -2], nbest.Weights(model=0, scores=(1,)))
    assert [(a.words, a.total) for a in ranked] == [('z', 3), ('b', 2), ('a', 1)]


WRONG = [
    ('a b c', ['--format=kaldi'], 'stdin:1: '),
    ('u-1 a\nu-x b', ['--format=kaldi'], 'stdin:2: '),
    (KALDI + 'u-c-1 a', ['--format=kaldi', '--score_files=costs.txt', '--score_weights=1'],
     'stdin:5: '),
    (KALDI, ['--format=kaldi', '--score_files=text', '--score_weights=1'], 'stdin:1: '),
    ('u-b i', ['--format=kaldi', '--score_files=bad', '--score_weights=1'], 'stdin:1: '),
    ('u-b-1 i', ['--format=kaldi', '--score_files=bad', '--score_weights=1'], 'bad:2: '),
    (KALDI, ['--format=kaldi', '--score_weights=1'], "--score_weights='1': "),
    (KALDI, ['--format=kaldi', '--tune=bad'], 'stdin:1: '),
    (KALDI, ['--format=kaldi', '--tune=references'], 'references:2: '),
    (MOSES, ['--tune=references', '--word_weight=1'], "--tune='references': "),
    (MOSES + '\n2 ||| a ||| 1', ['--tune=references'], 'stdin:5: '),
    (MOSES + '\n1 ||| a', ['--tune=references'], 'stdin:5: '),
    (MOSES, ['--tune=empty'], "--tune='empty': "),
    (MOSES, ['--tune=nowhere'], 'nowhere: '),
    (MOSES, ['--score_files=costs.txt'], "--score_files='costs.txt': "),
    (MOSES, ['--word_weight=nan'], "--word_weight='nan': "),
    ('0 ||| a\nb', [], 'stdin:2: '),
    ('0 ||| a\n||| b', [], 'stdin:2: '),
    ('0 ||| ||| a', [], 'stdin: '),
    ('a', ['--stream'], 'unrecognized arguments: --stream'),
    ('0 ||| a ||| 1 2', ['--score_weights=1'], 'stdin:1: '),
    ('0 ||| a', ['--score_weights=1'], 'stdin:1: '),
    ('0 ||| a ||| x', ['--score_weights=1'], 'stdin:1: '),
    ('0 ||| a ||| 1', ['--score_weights=1,b'], "--score_weights='1,b': "),
    ('0 ||| a', ['--summary'], 'unrecognized arguments: --summary'),
]  # fmt: skip


@pytest.mark.parametrize('text, arguments, message', WRONG)
def test_one_line_names_file_and_line(text, arguments, message, score, lines, tmp_path):
    (tmp_path / 'bad').write_text('u-a-1 1\nu-b-1 one\n')
    (tmp_path / 'empty').write_text('\n\n')
    with pytest.raises(SystemExit) as stop:
        score(text, *arguments)
    _, stderr = lines()
    assert stop.value.code == 2 and message in stderr[0] and len(stderr) == 1, stderr


def test_what_belongs_to_lists_is_refused_without_them(folders, lines):
    for flag in ('--tune=x', '--word_weight=1.0', '--score_files=x'):
        with pytest.raises(SystemExit):
            cli.main(['score', str(folders / 'network'), flag])
        assert lines()[1][-1].startswith(f'unrecognized arguments: {flag}')


def test_a_weight_of_the_model_counts_alone_too(score):
    best, _ = score(MOSES)
    worst, _ = score(MOSES, '--model_weight=-1')
    assert best[0].split(' ||| ')[1] != worst[0].split(' ||| ')[1]


def test_alternatives_are_ranked_within_their_ids(score, folders, lines, monkeypatch):
    text = '7 ||| i like milk ||| a=1\n3 ||| dog like i\n7 ||| i like dog ||| a=2\n3 ||| i like dog'
    found = [line.rsplit(' ||| ', 1) for line in score(text)[0]]
    assert [line for line, _ in found] == [
        '7 ||| i like dog ||| a=2', '7 ||| i like milk ||| a=1', '3 ||| i like dog', '3 ||| dog like i',
    ]  # fmt: skip
    assert found[0][1] == found[2][1]
    monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(b'i like milk')))
    cli.main(['score', str(folders / 'network')])
    assert f'Total: {found[1][1]} ' in '\n'.join(lines()[0])


@pytest.mark.parametrize('separator', ['|||', ' |||', '||| ', '  |||  ', '\t|||\t'])
@pytest.mark.parametrize('before, after', [('', ''), (' ', ' '), ('\t', '\r')])
def test_spaces_around_fields_change_nothing(separator, before, after):
    flags = argparse.Namespace(format='moses', score_files='', tune='')
    rows = [('3', 'the jury', '-2'), ('3', '', '-2'), ('3', 'the jury', ''), ('4', 'a  b', 'LM= -1 -2'), ('5', '')]
    read = nbest.read(flags, [f'{before}{separator.join(row)}{after}' for row in rows], nbest.Weights())
    assert [tuple(a.fields) for a in read] == rows
    assert [a.words for a in read] == [row[1] for row in rows]


def test_an_empty_translation_is_an_empty_sentence_of_its_list(score):
    text = '3 ||| i like dog ||| -2\n 3 ||| ||| -9\n3 |||  ||| -8\n3 ||| i dog |||'
    found, _ = score(text)
    assert found[:2] == ['3 |||  ||| -9 ||| 0', '3 |||  ||| -8 ||| 0']  # log10 P of no words
    assert [line.rsplit(' ||| ', 1)[0] for line in found[2:]] == ['3 ||| i like dog ||| -2', '3 ||| i dog ||| ']
    (line,), _ = score(text, '--end', '--json')
    totals = {a['words']: a['total'] for a in json.loads(line)['alternatives']}
    assert totals[''] < totals['i like dog'] < 0


def test_scores_on_the_line_are_weighed_in_and_their_names_skipped(score, folders):
    text = '7 ||| i like milk ||| LM0= -1 TM0= -2 ||| -9\n7 ||| i like dog ||| LM0= -8 TM0= -9 ||| -9'
    (by_model, _), _ = score(text)
    assert by_model.startswith('7 ||| i like dog')
    (first, second), _ = score(text, '--score_weights=1,0.5', '--model_weight=0.25')
    assert first.startswith('7 ||| i like milk ||| LM0= -1 TM0= -2 ||| -9 ||| ')
    for line, scores in ((first, -1 - 0.5 * 2), (second, -8 - 0.5 * 9)):
        *_, log10_p, total = line.split(' ||| ')
        assert float(total) == pytest.approx(0.25 * float(log10_p) + scores, abs=1e-5)
    (output,), _ = score(text, '--score_weights=1,0.5', '--json')
    assert [a['words'] for a in json.loads(output)['alternatives']] == ['i like milk', 'i like dog']


def test_unknown_words_are_warned_of(score):
    check_unknown_words(lambda text: score(f'1 ||| {text}\n')[1])
