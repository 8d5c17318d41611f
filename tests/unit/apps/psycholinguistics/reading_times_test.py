"""Tests `nplm reading-times`: the study's numbers, the written predictors, and errors for invalid tables."""

import csv
import datetime
import json
import math
import pathlib
import random
import re

import matplotlib.text
import numpy as np
import pytest
from helpers import ROOT, refuses

from nplm_jax.apps.psycholinguistics import figures, gains, reading_times
from nplm_jax.apps.psycholinguistics.stimuli import ColumnNames
from nplm_jax.cli import __main__ as cli
from nplm_jax.runs import remote_scoring
from nplm_jax.utils.errors import BadInput

WORDS = ('i', 'like', 'dog', 'love', 'coffee', 'hate', 'milk')


def write_table(path, num_items=12, size=9, seed=1, **changes):
    """Writes items of random words with reading times. `changes` contains cell values by row, from 0."""
    rng = random.Random(seed)
    rows = []
    for item in range(1, num_items + 1):
        for zone in range(1, size + 1):
            rows.append([item, 'ab'[item % 2], zone, rng.choice(WORDS), round(rng.uniform(250, 400), 1)])
    for row, time in changes.items():
        rows[int(row[1:])][-1] = time
    lines = [','.join(map(str, row)) for row in (['item', 'condition', 'zone', 'word', 'time'], *rows)]
    path.write_text('\n'.join(lines) + '\n')
    return path


def test_the_predictors_that_are_written_give_the_gain(folders, tmp_path, nplm_command):
    table = write_table(tmp_path / 'times.csv', r5='NA', r14='')
    output = tmp_path / 'predictors.csv'
    models = folders / 'network', folders / 'counts'
    arguments = *models, '--folds=3', '--json', f'--output={output}', f'--figure={tmp_path / "gains.png"}'
    (out,), _ = nplm_command('reading-times', f'--table={table}', *arguments)
    found = json.loads(out)
    assert list(found['models']) == ['network', 'counts'] and found['items'] == 12 == len(found['counts'])
    rows = list(csv.DictReader(output.read_text().splitlines()))
    assert len(rows) == found['words'] == 108
    kept = [row for row in rows if row['analysed'] == 'TRUE']
    assert len(kept) == found['analysed'] == sum(found['counts'])
    assert {row['position'] for row in kept} == set('45678') and not {'NA', ''} & {row['time'] for row in kept}
    item_W = np.array([int(row['item']) for row in rows])
    is_kept_W = np.array([row['analysed'] == 'TRUE' for row in rows])
    length_W, frequency_W, bits_W = (
        np.array([float(row[key]) for row in rows]) for key in ('length', 'log_frequency', 'surprisal_counts')
    )
    before = [float(row['surprisal_counts_prev1']) for row in kept]
    added_WxA = gains.with_words_before(bits_W, item_W)[is_kept_W]
    np.testing.assert_allclose(added_WxA[:, 1], before)
    zone_W = np.array([int(row['zone']) for row in rows])
    baseline_WxB = gains.make_baseline([row['word'] for row in rows], item_W, zone_W, length_W, frequency_W)[is_kept_W]
    times_W = np.log([float(row['time']) for row in kept])
    gain = gains.gain(times_W, item_W[is_kept_W], baseline_WxB, added_WxA, None, 3)
    assert found['models']['counts']['gain'] == pytest.approx(gain.per_word, rel=1e-6)
    assert (tmp_path / 'gains.png').stat().st_size > 5000


def test_the_formula_in_r_has_columns_that_are_written(folders, tmp_path, nplm_command):
    page = (ROOT / 'docs' / 'howto' / 'reading_times.md').read_text()
    (formula,) = re.findall(r'lmer\(log\(rt\) ~ (.*?), data', page, re.DOTALL)
    named = set(re.findall(r'[a-z][\w.]+', formula)) | {'analysed'}
    output = tmp_path / 'predictors.tsv'
    nplm_command(
        'reading-times', str(folders / 'counts'), '--table', str(write_table(tmp_path / 'a.csv')), f'--output={output}'
    )
    columns = output.read_text().splitlines()[0].split('\t')
    assert {name.replace('brown.mlp9', 'counts') for name in named} <= set(columns) and len(named) > 6


def test_conditions_of_an_item_are_left_out_together(folders, tmp_path, nplm_command):
    table = write_table(tmp_path / 'times.csv')
    lines = table.read_text().splitlines()
    paired = [f'{(int(line.split(",")[0]) + 1) // 2},{line.partition(",")[2]}' for line in lines[1:]]
    table.write_text('\n'.join([lines[0], *paired]))
    arguments = folders / 'counts', f'--table={table}', '--item=item,condition', '--folds=6', '--json'
    (out,), _ = nplm_command('reading-times', *arguments)
    assert json.loads(out)['items'] == 6


def test_rows_of_readers_are_kept_and_their_items_are_left_out_together(folders, tmp_path, nplm_command, monkeypatch):
    table, measured = write_table(tmp_path / 'times.csv'), []
    found = [json.loads(nplm_command('reading-times', folders / 'counts', f'--table={table}', '--json')[0][0])]
    header, *rows = table.read_text().splitlines()
    table.write_text('\n'.join([f'reader,{header}', *(f'{reader},{row}' for reader in 'ab' for row in rows)]))
    map_lines = remote_scoring.map_lines
    monkeypatch.setattr(remote_scoring, 'map_lines', lambda *x: measured.append(len(x[2])) or map_lines(*x))
    arguments = folders / 'counts', f'--table={table}', '--item=item,reader', '--json'
    found.append(json.loads(nplm_command('reading-times', *arguments)[0][0]))
    assert measured == [12]  # each item occurs once
    once, twice = found
    assert twice['analysed'] == 2 * once['analysed'] and twice['items'] == once['items'] == 12
    for key in ('gain', 'interval', 'slopes'):  # both readers have the same time for each word
        assert twice['models']['counts'][key] == pytest.approx(once['models']['counts'][key])


def test_a_table_for_readers_and_frequencies_of_the_table(folders, tmp_path, nplm_command):
    table, output = write_table(tmp_path / 'times.csv'), tmp_path / 'predictors.csv'
    shown, _ = nplm_command(
        'reading-times', folders / 'counts', f'--table={table}', '--frequency=time', '--scale=ms', f'--output={output}'
    )
    rows = list(csv.DictReader(output.read_text().splitlines()))
    assert [float(row['log_frequency']) for row in rows] == [float(row['time']) for row in rows]
    assert [row['log_frequency_prev2'] for row in rows[:4]] == ['', '', *(row['log_frequency'] for row in rows[:2])]
    assert re.findall(r'\d+', shown[0])[:4] == ['60', '108', '12', '100']
    assert shown[1].split('|')[1].strip() == 'run' and 'ms/bit' in shown[1]


def test_a_table_without_log_frequencies_is_refused(tmp_path):
    table = reading_times.read(write_table(tmp_path / 'times.csv'), ColumnNames(), 'time', 'log')
    measured = {'log_frequency': [math.nan] * 108, 'in_vocabulary': [True] * 108, 'length': [3] * 108}
    with refuses('--frequency'):
        reading_times.make_predictors(table, measured, [])


def test_the_figure_has_a_row_a_model(tmp_path):
    models = {name: {'gain': 0.01, 'interval': [0.002, 0.02]} for name in ('a$b', 'c')}
    figures.draw_gains(models, tmp_path / 'gains.png')
    assert (tmp_path / 'gains.png').read_bytes()[:4] == b'\x89PNG'


WRONG = [
    (
        ['--time=rt'],
        "--time='rt': ",
    ),
    (['--time=condition'], "times.csv:2, column 'condition': "),
    (['--frequency=f'], "--frequency='f': "),
    (['--word=w'], "word column='w': "),
    (['--folds=13'], '--folds=13: '),
    (['--folds=1'], '--folds=1: '),
    (
        ['--item=condition'],
        'times.csv:20: ',
    ),
    (['--zone=time'], 'times.csv:'),
    (['--output=x.json'], "--output='x.json': "),
    (['--figure=x.pdf'], "--figure='x.pdf': "),
    (['nowhere'], "RUN='nowhere': "),
    (['OTHER', 'COUNTS'], '/other'),
    (['OTHER'], 'items=0: '),
]


@pytest.mark.parametrize('arguments,message', WRONG)
def test_one_clear_line_and_exit_code_two(arguments, message, folders, tmp_path, lines, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(pathlib.Path('times.csv'))
    places = {'OTHER': str(folders / 'other'), 'COUNTS': str(folders / 'counts')}
    for name, place in places.items():
        arguments = [argument.replace(name, place) for argument in arguments]
    with pytest.raises(SystemExit) as stop:
        runs = [str(folders / 'counts')] if arguments[0].startswith('-') else []
        cli.main(['reading-times', '--table=times.csv', *runs, *arguments])
    _, stderr = lines()
    assert stop.value.code == 2 and message in stderr[0] and len(stderr) == 1, stderr


@pytest.mark.parametrize(
    'changes,start',
    [
        ({'r3': 'fast'}, "times.csv:5, column 'time': "),
        ({'r3': 'inf'}, "times.csv:5, column 'time': "),
        ({'r3': '1_000'}, "times.csv:5, column 'time': "),
        ({'r3': 0}, "times.csv:5, column 'time': "),
        ({f'r{row}': 'NA' for row in range(108)}, "--time='time': "),
    ],
)
def test_times_that_are_none_are_refused(changes, start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write_table(pathlib.Path('times.csv'), **changes)
    with pytest.raises(BadInput) as error:
        reading_times.read(path, ColumnNames(), 'time', 'log')
    assert str(error.value).startswith(start)


@pytest.mark.parametrize('cell', [datetime.timedelta(milliseconds=300), [300]])
def test_a_column_of_parquet_that_has_no_numbers_is_refused(cell, tmp_path):
    parquet, pyarrow = (pytest.importorskip(name) for name in ('pyarrow.parquet', 'pyarrow'))
    table = {'item': [1], 'zone': [1], 'word': ['a'], 'time': [cell]}
    parquet.write_table(pyarrow.table(table), tmp_path / 'times.parquet')
    with refuses("times.parquet, row 1, column 'time'"):
        reading_times.read(tmp_path / 'times.parquet', ColumnNames(), 'time', 'log')


def test_too_few_words_for_the_regression_are_refused(folders, tmp_path, lines):
    table = write_table(tmp_path / 'times.csv', num_items=3)
    with pytest.raises(SystemExit):
        cli.main(['reading-times', str(folders / 'counts'), '--table', str(table), '--folds=3'])
    (line,) = lines()[1]
    assert '=15: ' in line and '17' in line


def test_times_that_are_equal_in_each_item_are_refused(folders, tmp_path, lines):
    table = write_table(tmp_path / 'times.csv', **{f'r{row}': 300 + row // 9 for row in range(108)})
    with pytest.raises(SystemExit):
        cli.main(['reading-times', str(folders / 'counts'), '--table', str(table), '--folds=3'])
    assert lines()[1][0].startswith("--time='time': ")


def test_words_of_a_script_without_blanks_that_are_all_unknown_are_refused(folders, tmp_path, lines):
    rows = [f'{item},{zone},{word},300' for item in range(12) for zone, word in enumerate(('那只', '猫', '睡', '。'))]
    (tmp_path / 'times.csv').write_text('\n'.join(['item,zone,word,time', *rows]))
    with pytest.raises(SystemExit):
        cli.main(['reading-times', str(folders / 'counts'), f'--table={tmp_path / "times.csv"}'])
    (line,) = lines()[1]
    assert line.startswith("word='那只 猫 睡 。': ")


@pytest.mark.parametrize('name', ['lstm', 'novel-recurrent__minutes_2__corpus.min_count_4', 'n' * 120])
def test_no_text_of_the_figure_is_cut_off(name, monkeypatch, tmp_path):
    found = []
    monkeypatch.setattr(figures, 'save_figure', lambda drawn, path: found.append(drawn))
    figures.draw_gains({name: {'gain': 0.01, 'interval': [0.0, 0.02]}}, tmp_path / 'gains.png')
    found[0].draw_without_rendering()
    width, height = found[0].bbox.size
    labels = [text for text in found[0].findobj(matplotlib.text.Text) if text.get_text().startswith('gain')]
    texts = [*labels, *found[0].axes[0].get_yticklabels()]
    assert len(texts) == 2
    for box in (text.get_window_extent() for text in texts):
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
