"""Tests minimal pairs from a user's table: BLiMP's rule, ties, regions, and errors for invalid tables."""

import csv
import json
import pathlib
import shutil

import numpy as np
import pytest
from helpers import refuses, write_arpa

from nplm_jax.apps.psycholinguistics import minimal_pairs, pairs
from nplm_jax.cli import __main__ as cli

TABLE = """good,bad,kind,verb_good,verb_bad
i like dog,i dog like,order,like,dog like
i love dog,i love dog,same,dog,dog
i zebra milk,i okapi milk,same,zebra,okapi
"""


@pytest.fixture
def table(tmp_path):
    (tmp_path / 'pairs.csv').write_text(TABLE)
    return tmp_path / 'pairs.csv'


def test_the_words_that_differ_are_between_what_both_share():
    assert minimal_pairs.differing_words(['a', 'b', 'c'], ['a', 'c']) == ['b']
    assert minimal_pairs.differing_words(['a', 'a'], ['a']) == ['a']
    assert minimal_pairs.differing_words(['a', 'b'], ['a', 'b']) == []
    assert minimal_pairs.differing_words([], ['a']) == ['a']


def test_rounding_is_a_tie_and_so_are_two_impossible_sentences():
    log_p_Px2 = np.array([[-3.0, -3.0 - 1e-7], [-np.inf, -np.inf], [-3.0, -np.inf], [-np.inf, -3.0]])
    difference_P = minimal_pairs.differences(log_p_Px2)
    found = minimal_pairs.count(difference_P, ['a', 'a', 'b', 'b'], np.ones(4, bool))
    assert found == {'a': [2, 0, 2], 'b': [2, 1, 0]}
    assert minimal_pairs.count(difference_P, ['a'] * 4, np.array([True, False, True, False])) == {'a': [2, 1, 1]}
    with refuses('log P'):
        minimal_pairs.differences(np.full((4, 2), np.nan))


@pytest.mark.parametrize('ties, worth', [('half', 0.5), ('wrong', 0.0), ('right', 1.0)])
def test_a_tie_counts_as_the_flag_says(ties, worth, folders, table, nplm_command, tmp_path):
    output = tmp_path / 'scored.csv'
    models = folders / 'counts', folders / 'other'  # of two vocabularies
    flags = f'--table={table}', '--group=kind', '--json', f'--output={output}', *[f'--ties={ties}'] * (ties != 'half')
    (out,), _ = nplm_command('pairs', *models, *flags)
    found = json.loads(out)['models']
    row = found['counts']
    assert list(found) == ['counts', 'other'] and row['groups']['same'] == {
        **{'pairs': 2, 'correct': 0, 'ties': 2, 'accuracy': worth},
        'known': {'pairs': 1, 'correct': 0, 'ties': 1, 'accuracy': worth},
    }
    assert row['groups']['order']['correct'] == 1 == row['all']['correct'] and row['all']['ties'] == 2
    assert row['all']['accuracy'] == pytest.approx((1 + 2 * worth) / 3)
    rows = list(csv.DictReader(output.read_text().splitlines()))
    assert [row['result_counts'] for row in rows] == ['correct', 'tie', 'tie']
    assert [row['in_vocabulary_counts'] for row in rows] == ['TRUE', 'TRUE', 'FALSE']
    assert [row['verb_bad'] for row in rows] == ['dog like', 'dog', 'okapi']
    for row in rows:
        difference = float(row['surprisal_bad_counts']) - float(row['surprisal_good_counts'])
        assert float(row['difference_counts']) == pytest.approx(difference, abs=1e-6)


def test_sentences_and_regions_have_the_surprisals_of_nplm_surprisal(folders, table, nplm_command, tmp_path):
    regions = '--region_good=verb_good', '--region_bad=verb_bad'
    output, words = tmp_path / 'scored.tsv', tmp_path / 'words.tsv'
    shown, _ = nplm_command('pairs', folders / 'network', f'--table={table}', *regions, f'--output={output}')
    (row, *_) = csv.DictReader(output.read_text().splitlines(), delimiter='\t')
    run = folders / 'network'
    nplm_command('surprisal', run, f'--table={table}', '--sentence=bad', '--item=good', f'--output={words}')
    lines = csv.DictReader(words.read_text().splitlines(), delimiter='\t')
    bits = [float(line['surprisal_network']) for line in lines][:3]
    assert float(row['surprisal_bad_network']) == pytest.approx(sum(bits), rel=1e-5)
    assert float(row['region_bad_network']) == pytest.approx(sum(bits[1:]), rel=1e-5)
    difference = float(row['region_bad_network']) - float(row['region_good_network'])
    assert float(row['region_difference_network']) == pytest.approx(difference, rel=1e-4)
    assert len(shown) > 2


def test_a_pair_with_the_symbol_for_unknown_words_is_not_known(folders, nplm_command, tmp_path):
    (tmp_path / 'pairs.csv').write_text('good,bad\ni like dog,i like <rare>\ni <rare> dog,i <rare> milk\n')
    output = tmp_path / 'scored.csv'
    flags = f'--table={tmp_path / "pairs.csv"}', '--json', f'--output={output}'
    (out,), _ = nplm_command('pairs', folders / 'counts', *flags)
    assert json.loads(out)['models']['counts']['all']['known']['pairs'] == 0
    assert [row['in_vocabulary_counts'] for row in csv.DictReader(output.read_text().splitlines())] == 2 * ['FALSE']


def test_an_arpa_file_is_a_model(folders, table, nplm_command, tmp_path):
    write_arpa(folders / 'counts', tmp_path / 'lm.arpa')
    found = [
        json.loads(nplm_command('pairs', model, f'--table={table}', '--json')[0][0])['models']
        for model in (folders / 'counts', tmp_path / 'lm.arpa')
    ]
    assert found[0]['counts']['all'] == found[1]['lm.arpa']['all']


def test_two_folders_of_the_same_name_are_named_by_their_paths(folders, table, nplm_command, tmp_path):
    shutil.copytree(folders / 'counts', tmp_path / 'counts')
    runs = [str(folders / 'counts'), str(tmp_path / 'counts')]
    (out,), _ = nplm_command('pairs', *runs, f'--table={table}', '--json')
    assert list(json.loads(out)['models']) == runs


def test_a_region_is_found_without_the_punctuation_around_it(tmp_path):
    row = {'sentence_good': 'I like the "dog".', 'sentence_bad': 'I like milk, dog.', 'a': 'dog', 'b': 'milk dog'}
    (tmp_path / 'pairs.jsonl').write_text(f'{json.dumps(row)}\n')
    table = pairs.read(tmp_path / 'pairs.jsonl', regions=('a', 'b'))
    assert table.regions == [slice(3, 4), slice(2, 4)]


WRONG = [
    ('a,b\nx,y\n', [], "--good='good': "),
    ('a,b\nx,y\n', ['--good=a', '--bad=c'], "--bad='c': "),
    ('good,bad\nx,y\n', ['--group=g'], "--group='g': "),
    ('good,bad\nx,y\n', ['--bad=good'], "--bad='good': "),
    ('good,bad\nx,y\nx,\n', [], "pairs.csv:3, column 'bad': "),
    ('good,bad\n', [], 'pairs.csv: '),
    ('good,bad,r,s\ni like dog,i dog,cat,dog\n', ['--region_good=r', '--region_bad=s'], "'cat'"),
    ('good,bad,r,s\na b a,a b,a,b\n', ['--region_good=r', '--region_bad=s'], "'a b a'"),
    ('good,bad,r,s\na b,a b,,b\n', ['--region_good=r', '--region_bad=s'], "column 'r': "),
    ('good,bad\nx,y\n', ['--region_bad=r'], "--region_good='': "),
    ('good,bad,result_counts\ni like,like i,1\n', [], "column='result_counts': "),
    ('good,bad\n那只猫睡,那只睡猫\n', [], "sentences='那只猫睡': "),
    ('good,bad\nx,y\n', ['--output=x.txt'], "--output='x.txt': "),
    ('good,bad\nx,y\n', ['nowhere'], "RUN='nowhere': "),
    ('good,bad\nx,y\n', ['{}'], 'must not be given twice'),
]


@pytest.mark.parametrize('text,arguments,message', WRONG)
def test_one_clear_line_and_exit_code_two(text, arguments, message, folders, tmp_path, lines, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'pairs.csv').write_text(text)
    with pytest.raises(SystemExit) as stop:
        runs = [] if arguments[:1] == ['nowhere'] else [str(folders / 'counts')]
        cli.main(['pairs', '--table=pairs.csv', *runs, *(argument.format(*runs) for argument in arguments)])
    _, stderr = lines()
    assert stop.value.code == 2 and message in stderr[0] and len(stderr) == 1, stderr


@pytest.mark.parametrize(
    'line,message',
    [
        ('[1]', 'pairs.jsonl:3'),
        ('no', 'pairs.jsonl:3'),
        (r'{"good": "a b", "bad": "b a", "note": ["\ud83d"]}', 'pairs.jsonl:3'),
        (r'{"good": "a b", "bad": "b a", "\ud83d": 1}', 'pairs.jsonl:3'),
        ('{"good": "x"}', "pairs.jsonl:3, column 'bad'"),
        ('{"good": "x", "bad": NaN}', "pairs.jsonl:3, column 'bad'"),
        ('{"good": ["x", "y"], "bad": "x"}', "pairs.jsonl:3, column 'good'"),
    ],
)
def test_a_damaged_line_of_json_is_named(line, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path('pairs.jsonl').write_text(f'{{"good": "i", "bad": "i"}}\n\n{line}\n')
    with refuses(message):
        pairs.read(pathlib.Path('pairs.jsonl'))


def test_a_table_of_another_kind_is_refused():
    with refuses('--table'):
        pairs.read(pathlib.Path('pairs.xlsx'))
