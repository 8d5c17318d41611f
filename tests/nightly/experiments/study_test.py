"""Tests every printed command of a study: its module, its flags, and its start in the smallest form."""

import argparse
import ast
import contextlib
import datetime
import functools
import importlib
import json
import os
import re
import shlex
import time

import jax
import pytest
from helpers import ROOT
from studies import entry, start

from experiments import results, study

PRINTED = re.compile(r'python -m (experiments(?:\.\w+)+)(.*)')
END = re.compile(r'`| &&| -->|\s#|  |(?<!\.)[.;,]$')  # the end of a command: prose, or another command
WRONG = {  # arguments, one of which names a missing or impossible value
    'use.decoding.study': ['--runs=nosuch'],
    'paper.generalization.study': ['--sizes', '7'],
    'use.minimal_pairs.measure': ['--runs=nosuch'],
    'paper.parallel.table': ['--measure'] if jax.device_count() < 8 else ['--flops=0'],
    'use.reading_times.measure': ['--runs=nosuch', '--data=nosuch'],
    'runs': ['nosuch'],
    'cost.scale.generate': ['10', 'nosuch/text.txt'],
    'cost.scale.ngrams': ['--folder=nosuch'],
    'cost.scale.preparation': ['nosuch.txt'],
    'cost.scale.training': ['nosuch.txt'],
    'use.similarity.measure': ['--runs=nosuch'],
    'beyond.tokens.reading': ['--workdir=nosuch', '--data=nosuch'],
    'beyond.tokens.study': ['--workdir=runs', '--run=nosuch'],
}


@functools.cache
def printed() -> dict[str, set[str]]:
    """Returns the arguments of all commands in pages and docstrings, by module."""
    pages = [ROOT / 'README.md', *ROOT.glob('docs/**/*.md'), *ROOT.glob('experiments/**/*.md')]
    texts = [path.read_text() for path in pages]
    texts += [ast.get_docstring(ast.parse(path.read_text())) or '' for path in ROOT.glob('experiments/**/*.py')]
    found: dict[str, set[str]] = {}
    for module, rest in PRINTED.findall('\n'.join(texts).replace('\\\n', ' ')):
        found.setdefault(module, set()).add(END.split(rest)[0].strip())
    return found


def programs() -> dict[str, ast.If]:
    """Returns the `if __name__ == '__main__'` block of each study."""
    found = {}
    for path in ROOT.glob('experiments/**/*.py'):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'":
                found['.'.join(path.relative_to(ROOT).with_suffix('').parts)] = node
    return dict(sorted(found.items()))


def words_of(command: str) -> list[str]:
    """Returns the words of a printed command, including bracketed flags but without their values."""
    flags = [
        flag for group in re.findall(r'\[(.*?)\]', command) for flag in re.findall(r'--(?!config\.)[^\s|]+', group)
    ]
    return shlex.split(re.sub(r'\[.*?\]', '', command).replace('...', ' ')) + flags


def test_every_printed_command_is_of_a_study_and_every_study_has_one_entry():
    assert set(printed()) == set(programs())
    for module, program in programs().items():
        *_, call = program.body
        assert re.match(r'\w+\.run\(__doc__, ', ast.unparse(call)), module


@pytest.mark.parametrize('module', programs())
def test_the_flags_of_a_printed_command_are_those_of_the_study(module):
    options = entry(module)
    parser = study.make_parser(options['doc'], options.get('define', lambda parser: None), 'show' in options)
    assert options['doc'].splitlines()[0] in parser.format_help()
    for command in printed()[module]:
        parser.parse_args(words_of(command))


@pytest.mark.parametrize('module', programs())
def test_a_study_shows_its_committed_results(module, tmp_path, monkeypatch, capsys):
    if 'show' not in entry(module):
        pytest.skip('another study prints its results')
    monkeypatch.chdir(tmp_path)
    assert start(module, ['--show']) == 0
    out, err = capsys.readouterr()
    assert re.search(r'^\|.*\|\n\|[-: |]+\|\n\|', out, re.MULTILINE) and not err


@pytest.mark.parametrize('module', programs())
def test_what_is_missing_or_cannot_be_is_one_line(module, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = WRONG.get(module.removeprefix('experiments.'), ['--nosuch'])
    assert start(module, words) in (1, 2)
    out, err = capsys.readouterr()
    assert err.count('\n') == 1 and not list(tmp_path.iterdir())
    names = words[-1].split('=')[-1] if words else ''
    assert names in err or 'pip install' in err or 'devices' in err


def outputs() -> list[str]:
    """Returns the studies that have --output."""
    found = []
    for module in programs():
        with contextlib.suppress(pytest.skip.Exception):  # for a study whose app has been deleted
            options = entry(module)
            parser = study.make_parser(options['doc'], options.get('define', lambda parser: None), 'show' in options)
            found += [module] if '--output' in parser.format_help() and 'measure' in options else []
    return found


@pytest.mark.parametrize('module', outputs())
def test_an_output_that_cannot_be_written_is_refused_before_anything_is_measured(module, tmp_path, capsys):
    def measure(flags):
        raise AssertionError('measured')

    (tmp_path / 'file').write_text('')
    needed = {
        'use.reading_times.measure': ['--runs=x', '--data=x'],
        'beyond.tokens.study': ['--workdir=x', '--run=one_minute-brown-words-1'],
    }
    needed |= dict.fromkeys(('use.similarity.measure', 'use.minimal_pairs.measure'), ['--runs=x'])
    words = [*needed.get(module.removeprefix('experiments.'), []), f'--output={tmp_path}/file/below/x.json']
    with pytest.raises(SystemExit, match='^2$'):
        study.run(**{**entry(module), 'measure': measure, 'measure_if': '', 'argv': words})
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"--output='{tmp_path}/file/below/x.json': ")


INTERRUPTED = {  # study -> function that measures a row, key of the rows, arguments, missing inputs
    'paper.parallel.table': ('program.measure', 'meshes', ['--measure'], []),
    'cost.scale.preparation': ('measure', 'texts', ['text', 'text', 'text'], []),
    'cost.speed.race': ('race_row', 'rows', [], ['problem.set_up', 'ceiling.flops_per_second']),
}


@pytest.mark.parametrize('name', INTERRUPTED)
def test_a_study_that_is_interrupted_keeps_the_rows_that_it_has_measured(name, tmp_path, monkeypatch):
    function, key, words, missing = INTERRUPTED[name]
    module = importlib.import_module(f'experiments.{name}')
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'text').write_text('a\n')
    rows = iter([{'digest': ''}])

    def measure_row(*_):
        for row in rows:
            return row
        raise KeyboardInterrupt

    write, written = results.write, tmp_path / 'x.json'
    monkeypatch.setattr(results, 'write', lambda _, measured: write(written, measured))
    for path in missing:
        monkeypatch.setattr(f'experiments.{name}.{path}', lambda *_: ('a', 'b'))
    monkeypatch.setattr(f'experiments.{name}.{function}', measure_row)
    monkeypatch.setattr(jax, 'device_count', lambda: 8)
    monkeypatch.setattr(os, 'sched_getaffinity', lambda _: {0})
    with pytest.raises(SystemExit, match='^130$'):
        study.run(module.__doc__, define=module.define, measure=module.main, argv=words)
    assert len(json.loads(written.read_text())[key]) == 1


def test_a_time_of_day_is_the_next_one():
    for minutes, expected in ((90, 90), (-90, 24 * 60 - 90)):
        then = datetime.datetime.now() + datetime.timedelta(minutes=minutes)
        assert (study.time_of_day(then.strftime('%H:%M')) - time.time()) / 60 == pytest.approx(expected, abs=1)
    with pytest.raises(argparse.ArgumentTypeError):
        study.time_of_day('25:00')


def test_the_preparation_of_texts_is_shown_from_the_file_that_is_named(tmp_path, capsys):
    committed = json.loads((ROOT / 'experiments/cost/scale/results/preparation.json').read_text())
    (tmp_path / 'mine.json').write_text(json.dumps({'texts': committed['texts'][:1]}))
    assert start('experiments.cost.scale.preparation', ['--show', f'--output={tmp_path / "mine.json"}']) == 0
    assert sum(line.startswith('|') for line in capsys.readouterr().out.splitlines()) == 3  # one row
