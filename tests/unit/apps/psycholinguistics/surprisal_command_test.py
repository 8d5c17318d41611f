"""Tests the command `nplm surprisal` with input as text or a table, and output as a table."""

import csv
import io
import re
import sys

import pytest
from helpers import ROOT, refuses, write_arpa

import nplm_jax
from nplm_jax.apps.psycholinguistics import tables
from nplm_jax.cli import __main__ as cli
from nplm_jax.data.text_checks import describe_oov
from nplm_jax.runs import loading

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')

ROWS = 'story\tzone\tword\trt\na\t1\tI\t300\na\t2\tlike\t310.5\na\t3\tzzz,\t\nb\t1\tdog\t1\n'


@pytest.fixture
def surprisal(monkeypatch, lines):
    """Returns a function that runs the command and returns its rows and stderr."""

    def call(*arguments, text=''):
        lines()
        monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(text.encode())))
        cli.main(['surprisal', *map(str, arguments)])
        stdout, stderr = lines()
        return list(csv.DictReader(stdout, delimiter='\t')), stderr

    return call


def test_text_of_two_runs_and_their_mixture(folders, surprisal):
    rows, stderr = surprisal(
        folders / 'network', folders / 'counts', '--weights=0.5,0.5', '--spillover=1', text='i like zzz\n\ni hate'
    )
    assert [(row['item'], row['zone'], row['word']) for row in rows] == [
        ('1', '1', 'i'), ('1', '2', 'like'), ('1', '3', 'zzz'), ('2', '1', 'i'), ('2', '2', 'hate'),
    ]  # fmt: skip
    for row in rows:
        p = [2 ** -float(row[f'surprisal_{name}']) for name in ('network', 'counts', 'mixture')]
        assert p[2] == pytest.approx((p[0] + p[1]) / 2, rel=1e-5)
    assert rows[3]['length_prev1'] == '' and rows[4]['length_prev1'] == '1'
    assert [row['scored_as'] for row in rows] == ['word', 'word', '<rare>', 'word', 'word']
    unknown, warning, summary = stderr
    assert rows[0]['starts_after'] == '<p>' and warning == describe_oov(0.2)
    assert '20.0%' in unknown and unknown.endswith(' zzz') and re.findall(r'\d+', summary) == ['2', '5']


def test_a_function_names_the_columns_as_the_command_does(folders, surprisal, tmp_path):
    cli.main(['pack', str(folders / 'counts'), f'--output={tmp_path}/small.nplm'])
    for run in (folders / 'counts', tmp_path / 'small.nplm'):
        rows, _ = surprisal(run, text='i like dog')
        words = nplm_jax.surprisal(nplm_jax.load(run), 'i like dog'.split())
        assert [*rows[0]] == [*words[0]] and f'surprisal_{run.name}' in rows[0]


def test_a_table_keeps_its_columns_and_goes_into_files(folders, surprisal, tmp_path):
    (tmp_path / 'in.tsv').write_text(ROWS)
    arguments = [folders / 'network', f'--table={tmp_path / "in.tsv"}', '--item=story']
    rows, _ = surprisal(*arguments)
    assert [row['rt'] for row in rows] == ['300', '310.5', '', '1']
    assert list(rows[0])[:4] == [
        'story',
        'zone',
        'word',
        'rt',
    ]
    assert surprisal(*arguments, f'--output={tmp_path / "out.csv"}')[0] == []
    with (tmp_path / 'out.csv').open(newline='') as file:
        assert list(csv.DictReader(file)) == rows
    parquet = pytest.importorskip('pyarrow.parquet')
    surprisal(*arguments, f'--output={tmp_path / "out.parquet"}')
    table = parquet.read_table(tmp_path / 'out.parquet').to_pydict()
    assert table['surprisal_network'] == pytest.approx([float(row['surprisal_network']) for row in rows], rel=1e-7)
    assert table['in_vocabulary'] == [True, True, False, True] and table['zone'] == list('1231')
    pyarrow = pytest.importorskip('pyarrow')
    times = [1234567890.25, 0.1]
    table = {'item': [1, 1], 'zone': [1, 2], 'word': ['I', 'like'], 'rt': times}
    parquet.write_table(pyarrow.table(table), tmp_path / 'in.parquet')
    rows, _ = surprisal(folders / 'network', f'--table={tmp_path / "in.parquet"}')
    assert [float(row['rt']) for row in rows] == times
    surprisal(folders / 'network', f'--table={tmp_path / "in.parquet"}', f'--output={tmp_path / "out.tsv"}')
    assert '\t1234567890.25\t' in (tmp_path / 'out.tsv').read_text()


def test_the_long_table_has_a_row_for_each_word_and_model(folders, surprisal):
    arguments = folders / 'network', folders / 'counts', '--weights=0.5,0.5', '--spillover=1'
    wide, _ = surprisal(*arguments, text='i like dog\ni hate milk')
    long, _ = surprisal(*arguments, '--long', text='i like dog\ni hate milk')
    names = 'network', 'counts', 'mixture'
    assert [row['model'] for row in long] == [name for name in names for _ in wide]
    of_model = 'surprisal', 'entropy', 'entropy_reduction', 'rank'
    columns = {key: f'{key}_NAME' for key in of_model} | {'surprisal_prev1': 'surprisal_NAME_prev1'}
    for row, expected in zip(long, wide * 3):
        for key, column in columns.items():
            assert row[key] == expected[column.replace('NAME', row['model'])]
        shared = row.keys() - columns.keys() - {'model'}
        assert shared == {key for key in expected if not any(name in key for name in names)}
        assert {key: row[key] for key in shared} == {key: expected[key] for key in shared}


def test_flags_reach_the_measurement(folders, surprisal):
    loaded = loading.load(folders / 'network')
    words, model = loaded.vocabulary, loaded.model
    (row,), _ = surprisal(folders / 'network', '--context=', text='i')
    expected = -model.next_word(words.encode([])[None])[0, words.ids['i']] / 0.6931471805599453
    assert float(row['surprisal_network']) == pytest.approx(expected, rel=1e-5) and row['starts_after'] == ''
    (row,), stderr = surprisal(folders / 'network', '--context=I like yyy', text='dog')
    expected = -model.next_word(words.encode(['i', 'like', 'yyy'])[None])[0, words.ids['dog']] / 0.6931471805599453
    assert float(row['surprisal_network']) == pytest.approx(expected, rel=1e-5) and row['starts_after'] == 'i like yyy'
    unknown, warning, summary = stderr
    assert '25.0%' in unknown and unknown.endswith(' yyy') and warning == describe_oov(0.25)
    assert re.findall(r'\d+', summary) == ['1', '1']
    (row,), _ = surprisal(folders / 'network', '--punctuation=word', text='"dog",')
    assert row['tokens'] == '" dog " ,' and row['length'] == '3'
    (row,), _ = surprisal(folders / 'network', '--tokens=whitespace', text='dog,')
    assert row['tokens'] == 'dog,'
    (row,), _ = surprisal(folders / 'network', '--hyphens=split', text='dog-milk')
    assert row['tokens'] == 'dog milk' and row['num_tokens'] == '2'


def test_the_words_of_an_arpa_file_have_no_frequencies(folders, surprisal, tmp_path):
    write_arpa(folders / 'counts', tmp_path / 'lm.arpa')
    rows, _ = surprisal(tmp_path / 'lm.arpa', text='i like dog')
    assert [row['word'] for row in rows] == ['i', 'like', 'dog'] and {row['log_frequency'] for row in rows} == {''}
    assert all(float(row['surprisal_lm.arpa']) > 0 for row in rows)


def test_an_unknown_word_with_a_space_that_does_not_break_is_told(folders, surprisal, tmp_path):
    write_arpa(folders / 'counts', tmp_path / 'lm.arpa')
    (tmp_path / 'words.csv').write_text('item,zone,word\n1,1,i\n1,2,like\xa0dog\n')
    (row, unknown), stderr = surprisal(tmp_path / 'lm.arpa', f'--table={tmp_path}/words.csv')
    assert unknown['in_vocabulary'] == 'FALSE' and stderr[0].startswith('1 of 2 words (50.0%) ')


def test_an_arpa_file_has_no_spelling_model(folders, surprisal, lines, tmp_path):
    write_arpa(folders / 'counts', tmp_path / 'lm.arpa')
    with pytest.raises(SystemExit):
        surprisal(tmp_path / 'lm.arpa', '--open', text='i like zzz')
    assert lines()[1][0].startswith('--open: requires a run')


def test_a_line_is_an_item_and_the_command_says_how_many_it_read(folders, surprisal):
    rows, stderr = surprisal(folders / 'network', text='i like dog\ni hate milk\n')
    assert [row['item'] for row in rows] == list('111222')
    assert [re.findall(r'\d+', line) for line in stderr] == [['2', '6']]


def test_a_table_of_sentences_in_conditions(folders, surprisal, tmp_path):
    (tmp_path / 'in.csv').write_text('nr;condition;text;rt\n1;a;I like dog,;3,5\n1;b;I hate milk;4,5\n')
    arguments = [folders / 'network', f'--table={tmp_path / "in.csv"}', '--item=nr,condition', '--sentence=text']
    rows, stderr = surprisal(*arguments)
    assert [row['word'] for row in rows] == ['I', 'like', 'dog,', 'I', 'hate', 'milk']
    unknown = '1 of 7 words (14.3%) are not in the vocabulary and are read as <rare>: ,'
    assert stderr == [unknown, describe_oov(1 / 7), 'items: 2, words: 6']
    assert [row['rt'] for row in rows] == ['3,5'] * 3 + ['4,5'] * 3
    text, _ = surprisal(folders / 'network', text='I like dog,\nI hate milk')
    assert [row['surprisal_network'] for row in rows] == [row['surprisal_network'] for row in text]


def test_the_columns_of_the_example_in_r_are_those_that_the_command_writes(folders, surprisal):
    page = ROOT / 'docs' / 'howto' / 'surprisal.md'
    (code,) = re.findall(r'```r\n(.*?)```', page.read_text(), re.DOTALL)
    (formula,) = re.findall(r'lmer\(log\(rt\) ~ (.*?), data', code, re.DOTALL)
    (scaled,) = re.findall(r'across\(c\((.*?)\)', code)
    (kept,) = re.findall(r'filter\((\w+), !is\.na\((\w+)\)\)', code)
    (joined,) = re.findall(r'by = c\((.*?)\)', code)
    named = {*re.findall(r'[a-z]\w+', f'{formula} {scaled} {joined}'), *kept}
    rows, _ = surprisal(folders / 'network', '--spillover=1', '--long', text='i like dog')
    assert named <= rows[0].keys()
    assert {'surprisal', 'surprisal_prev1', 'item', 'zone', 'in_vocabulary'} <= named


WRONG = [
    (['--figure=x.pdf'], "--figure='x.pdf':"),
    (['--sentence=text'], "--sentence='text':"),
    (['--item=story'], "--item='story':"),
    (['--table=in.tsv', '--item=story,', '--sentence=word'], "item column='':"),
    (['--table=taken.tsv', '--item=story'], "column='length':"),
    (['--table=long.tsv', '--item=story', '--long'], "column='model':"),
    (['--table=in.tsv'], "item column='item':"),
    (['--table=in.tsv', '--item=story', '--word=rt'], "in.tsv:4, column 'rt': is empty"),
    (['--table=crossed.tsv'], "zone column='zone':"),
    (['--table=nowhere.csv'], 'nowhere.csv:'),
    (['--output=x.txt'], "--output='x.txt':"),
    (['--spillover=-1'], 'spillover=-1:'),
    (['--open'], '/network:'),
    (['OTHER'], 'differs from that of'),
    ([], 'stdin:'),
]


@pytest.mark.parametrize('arguments,message', WRONG)
def test_one_clear_line_and_exit_code_two(arguments, message, folders, surprisal, lines, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'in.tsv').write_text(ROWS)
    (tmp_path / 'crossed.tsv').write_text('item\tcondition\tword\n1\ta\tI\n1\ta\tlike\n1\tb\tI\n1\tb\thate\n')
    (tmp_path / 'long.tsv').write_text(ROWS.replace('rt', 'model'))
    (tmp_path / 'taken.tsv').write_text(ROWS.replace('rt', 'length'))
    arguments = [argument.replace('OTHER', str(folders / 'other')) for argument in arguments]
    with pytest.raises(SystemExit) as stop:
        surprisal(folders / 'network', *arguments, text='i' if arguments else '')
    _, stderr = lines()
    assert stop.value.code == 2 and message in stderr[0] and len(stderr) == 1, stderr


def test_a_parquet_output_is_refused_before_the_measurement_if_pyarrow_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, 'pyarrow.parquet', None)
    with refuses('x.parquet'):
        tables.find_output('x.parquet')
    assert tables.find_output('x.csv').name == 'x.csv'
