"""Tests that the tables in the READMEs are the output of their scripts."""

import argparse
import contextlib
import functools
import io
import json
import re
import runpy
import shutil
import sys

import pytest
from helpers import ROOT, refuses
from studies import start

from experiments.cost.scale import ngrams
from experiments.paper.table1 import table as table1
from experiments.paper.table2 import table as table2
from tools.tables import SCRIPTS, commands, update


def test_no_row_of_table_2_may_miss(tmp_path):
    for file in table2.RESULTS.glob('*.json'):
        shutil.copy(file, tmp_path)
    assert table2.rows(tmp_path) == table2.rows()
    (tmp_path / 'kneser_ney_4.json').unlink()
    with refuses('kneser_ney_4.json'):
        table2.rows(tmp_path)


def test_table_2_shows_a_networks_fixed_mixture(tmp_path):
    for file in table2.RESULTS.glob('*.json'):
        shutil.copy(file, tmp_path)
    mixed = {'fixed': {'valid': 1.25, 'test': 2.5}}
    results = {'perplexity': {'valid': 8.0, 'test': 9.0}, 'mixture': mixed}
    (tmp_path / 'mlp10.json').write_text(json.dumps(results))
    assert table2.rows(tmp_path)[0][4:6] == ['1.2', '2.5']


@functools.cache
def printed(script):
    """Returns what a script prints."""
    module, *words = script.split()
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(io.StringIO()) as out:
        assert start(module, words) == 0
    return out.getvalue().strip()


@pytest.mark.parametrize('file,script', list(commands()))
def test_the_tables_are_the_scripts_output(file, script):
    page, tables = (ROOT / file).read_text(), printed(script)
    assert tables
    for table in tables.split('\n\n'):  # a page may have text between them
        assert table in page


@pytest.mark.parametrize('file', SCRIPTS)
def test_a_note_on_a_page_is_one_that_its_scripts_print(file):
    lines = {line for page, script in commands() if page == file for line in printed(script).splitlines()}
    assert {*re.findall('^Note: .*', (ROOT / file).read_text(), re.MULTILINE)} <= lines


def test_the_memory_of_counting_includes_the_helper_processes(tmp_path):
    measured = json.loads(ngrams.RESULTS.read_text())
    measured['sizes'][0]['nplm_jax'] |= {'peak_bytes': 357e6, 'helper_peak_bytes': 200e6}
    (path := tmp_path / 'ngrams.json').write_text(json.dumps(measured))
    ours = ngrams.table(argparse.Namespace(output=path)).splitlines()[2]
    assert [cell.strip() for cell in ours.split('|')][6] == '757'


def test_a_row_that_is_missing_or_another_runs_is_refused(tmp_path, monkeypatch):
    (tmp_path / 'results').mkdir()
    for file in (table1.HERE / 'results').glob('*.json'):
        shutil.copy(file, tmp_path / 'results')
    monkeypatch.setattr(table1, 'HERE', tmp_path)
    assert len(table1.rows()) == 8 * 4 + 14
    shutil.copy(tmp_path / 'results' / 'mlp3.json', tmp_path / 'results' / 'mlp1.json')
    with refuses('results/mlp1.json'):
        table1.rows()
    (tmp_path / 'results' / 'classes_150.json').unlink()
    (tmp_path / 'results' / 'mlp1.json').unlink()
    with refuses('results/mlp1.json'):
        table1.rows()


PAGE = """text

| a | b |
|---|---|
| x | 1 |

Note: the old one.

| a | b |
|---|---|
| y | 2 |

The end.
"""


def test_a_table_is_written_over_the_one_with_its_rows_and_a_note_over_the_former_note():
    x, y = (f'| a | b |\n|---|---|\n| {name} | 3 |\n' for name in 'xy')
    assert update(PAGE, y) == PAGE.replace('| y | 2 |', '| y | 3 |')
    assert update(PAGE, x) == PAGE.replace('| x | 1 |', '| x | 3 |').replace('Note: the old one.\n\n', '')
    noted = update(PAGE, f'{x}\nNote: another one.\n')
    assert noted == PAGE.replace('| x | 1 |', '| x | 3 |').replace('the old', 'another')
    assert update(noted, f'{x}\nNote: another one.\n') == noted
    with pytest.raises(ValueError, match='a | c'):
        update(PAGE, '| a | c |\n|---|---|\n| x | 3 |\n')


def test_a_table_of_a_few_rows_is_not_written_over_a_table_that_has_more():
    rows = lambda names: ''.join(f'| {name} | 1 |\n' for name in names)  # noqa: E731
    long, short = (f'| a | b |\n|---|---|\n{rows(names)}' for names in ('wxyz', 'xv'))
    grown = '| a | b |\n|---|---|\n| x | 2 |\n| y | 2 |\n| v | 2 |\n'
    assert update(f'{long}\n{short}', grown) == f'{long}\n{grown}'


def test_a_prefix_of_no_page_is_refused(monkeypatch):
    monkeypatch.setattr(sys, 'argv', ['tables', 'experiments/nosuch'])
    with pytest.raises(SystemExit, match='^experiments/nosuch: '):
        runpy.run_path(str(ROOT / 'tools' / 'tables.py'), run_name='__main__')
