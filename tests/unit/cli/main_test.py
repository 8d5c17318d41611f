"""Tests the common features of all commands: help, flags of runs, and errors for wrong folders."""

import io
import re
import shlex
import subprocess
import sys
import time

import pytest
from helpers import ROOT, call_main, refuses, write_arpa

from nplm_jax.cli import __main__ as cli
from nplm_jax.cli.commands import Command, all_commands
from nplm_jax.cli.parser import Parser
from nplm_jax.reporting.shell import nplm_command as nplm_words
from nplm_jax.utils.errors import BadInput


def run_help(*words):
    done = call_main(lambda: cli.main([*words, '--help']), ['nplm', *words, '--help'])
    assert done.returncode == 0
    return done.stdout


@pytest.mark.parametrize('name', all_commands())
def test_help_has_an_example_what_comes_out_and_every_default(name):
    text = run_help(*name.split())
    assert 'SUPPRESS' not in text and 'None' not in text
    assert text.startswith(f'usage: nplm {name}')
    assert re.search(f'^    nplm {name}( |$)', text, re.MULTILINE)
    options = text.partition('\noptions:')[2]
    entries = re.split(r'\n  (?=-)', ' '.join(options.split(' ')))[1:]
    for entry in entries:
        words = ' '.join(entry.split())
        assert words.startswith('-h') or 'default: ' in words or words.endswith('required'), words


def test_the_help_of_training_is_shown_after_a_config_too():
    assert run_help('train', 'brown', '--workdir=x') == run_help('train')


WRITERS = {  # the commands that write an output, with arguments for inputs that do not exist
    'adapt': ['runs/x'],
    'decode': ['runs/x', '--emissions=x.npz', '--labels=labels.txt'],
    'explore': ['runs/x', '--tour'],
    'export': ['runs/x', '--to=hf'],
    'features': ['runs/x', '--export'],
    'filter': ['runs/x', '--below=9', '--text', 'docs.txt'],
    'mix': ['runs/x', 'runs/y'],
    'pack': ['runs/x'],
    'pairs': ['runs/x', '--table=pairs.csv'],
    'prune': ['x.arpa', '--entropy=1'],
    'reading-times': ['runs/x', '--table=times.csv'],
    'rescore': ['runs/x'],
    'surprisal': ['runs/x', '--table=x.csv'],
}

DRAWERS = {'compare', 'filter', 'reading-times', 'surprisal'}


def test_every_command_with_an_output_can_overwrite_it():
    helps = {name: run_help(*name.split()) for name in all_commands()}
    have_output = {name for name, text in helps.items() if ' --output ' in text}
    have_figure = {name for name, text in helps.items() if ' --figure ' in text}
    assert have_output | have_figure == {name for name, text in helps.items() if '  --overwrite' in text}
    assert have_output == WRITERS.keys() & helps.keys() and have_figure == DRAWERS & helps.keys()


def main(name, *words):
    all_commands()[name].run(name, [*WRITERS[name], *words])


@pytest.mark.parametrize('name', sorted(WRITERS.keys() & all_commands().keys()))
def test_an_output_that_exists_is_refused_before_anything_is_read(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'docs.txt').write_text('a b\n')
    output = tmp_path / 'out' if name in ('export', 'features') else tmp_path / 'docs2.txt'
    written = output / 'features.txt' if output.name == 'out' else output
    output.mkdir() if written != output else None
    written.write_text('hours of work')
    with pytest.raises(BadInput) as caught:
        main(name, f'--output={output}')
    assert caught.value.key == '--output' and '--overwrite' in caught.value.problem
    assert written.read_text() == 'hours of work'
    try:
        main(name, f'-o{output}', '--overwrite')
    except BadInput as error:
        assert '--overwrite' not in error.problem  # its input is missing


def bad_outputs(name, tmp_path):
    """Returns output paths that cannot be written, in a folder with a file and a folder."""
    (tmp_path / 'docs.txt').write_text('a b\n')
    (tmp_path / 'file').write_text('')
    (tmp_path / 'folder.txt').mkdir()
    below = '' if name == 'features' else '/x.txt'  # its output is a folder, which may be missing
    outputs = [f'no/folder{below}', f'file{below}']
    outputs += [] if name in ('export', 'features', 'filter') else ['folder.txt']  # their outputs may be folders
    outputs += [''] if name in ('export', 'pack', 'prune') else []  # they need one
    return outputs


@pytest.mark.parametrize('name', sorted(WRITERS.keys() & all_commands().keys()))
def test_an_output_that_cannot_be_written_is_refused_before_anything_is_read(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for output in bad_outputs(name, tmp_path):
        with pytest.raises(BadInput) as caught:
            main(name, f'--output={output}')
        assert (caught.value.key, caught.value.value) == ('--output', output)
    assert not (tmp_path / 'no').exists()


@pytest.mark.parametrize('name', sorted(DRAWERS & all_commands().keys()))
def test_a_figure_that_cannot_be_written_is_refused_before_anything_is_read(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'file').write_text('')
    (tmp_path / 'folder.png').mkdir()
    for figure in ('no/x.png', 'file/x.png', 'folder.png'):
        with pytest.raises(BadInput) as caught:
            draw(name, f'--figure={figure}')
        assert (caught.value.key, caught.value.value) == ('--figure', figure)


def draw(name, *words):
    runs = {**WRITERS, 'compare': ['runs/x'], 'filter': ['runs/x', '--text', 'docs.txt']}[name]
    all_commands()[name].run(name, [*runs, *words])


@pytest.mark.parametrize('name', sorted(DRAWERS & all_commands().keys()))
def test_a_figure_that_exists_is_refused_before_anything_is_read(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'x.png').write_text('hours of work')
    with pytest.raises(BadInput) as caught:
        draw(name, '--figure=x.png')
    assert caught.value.key == '--figure' and '--overwrite' in caught.value.problem
    with pytest.raises(BadInput) as caught:
        draw(name, '--figure=x.png', '--overwrite')
    assert caught.value.key != '--figure'  # its input is missing
    with refuses('--overwrite'):
        draw(name, '--overwrite')


IMPORTS = """
import contextlib, io, sys
from nplm_jax.cli.__main__ import main
with contextlib.redirect_stdout(io.StringIO()):
    main(['--help'])
print(*sys.modules)
"""


def test_the_list_of_commands_imports_none_of_them():
    line = [sys.executable, '-c', IMPORTS]
    modules = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert not {*modules} & {'jax', 'numpy', 'orbax', 'matplotlib', 'ml_collections', 'nltk', 'flax'}
    assert not {*modules} & {command.module for command in all_commands().values()}


def test_help_takes_no_longer_than_a_few_imports_of_the_standard_library():
    """The time is compared with alternately started plain Python processes, because other tests use the machine too."""
    lines = {'help': '-m nplm_jax.cli --help'.split(), 'plain': ['-c', 'import argparse, json, dataclasses']}
    seconds = {name: [] for name in lines}
    for _ in range(5):
        for name, line in lines.items():
            started = time.perf_counter()
            subprocess.run([sys.executable, *line], cwd=ROOT, capture_output=True, check=True)
            seconds[name].append(time.perf_counter() - started)
    ratios = [ours / plain for ours, plain in zip(seconds['help'], seconds['plain'])]
    assert min(ratios) < 6, seconds  # JAX takes twenty times as long


def test_the_overview_names_every_command(lines):
    cli.main([])
    text = '\n'.join(lines()[0])
    assert all(command.summary in text for command in all_commands().values())


def test_runs_mix_with_flags_in_any_order():
    parser = Parser('test', None)
    parser.add_model_flags()
    parser.add_argument('--prompt')
    for words in (['a', 'b', '--prompt=x'], ['a', '--prompt', 'x', 'b'], ['--prompt=x', 'a', 'b']):
        flags = parser.parse_args(words)
        assert (flags.runs, flags.prompt, flags.typed) == (['a', 'b'], 'x', ['test', *words])


@pytest.mark.parametrize('text', ['nan', 'inf', '-inf', '1e999'])
@pytest.mark.parametrize('flag', ['generate --temperature', 'generate --top_p'])
def test_a_number_of_a_flag_is_finite(flag, text, lines):
    *command, name = flag.split()
    with pytest.raises(SystemExit) as stop:
        cli.main([*command, 'runs/nowhere', f'{name}={text}'])
    assert stop.value.code == 2 and [line.startswith(f"{name}='{text}': ") for line in lines()[1]] == [True]


@pytest.mark.parametrize(
    'kind, refused', [(int, ['x', '', '1.5', '2147483648', '9' * 5000]), (float, ['x', '', 'nan'])]
)
def test_a_number_that_is_none_is_refused_by_its_flag(kind, refused):
    parser = Parser('test', None)
    parser.add_argument('--number', '-n', type=kind, nargs='+')
    for text in refused:
        with pytest.raises(BadInput) as caught:
            parser.parse_args(['--number', '1', text])
        assert (caught.value.key, caught.value.value) == ('--number/-n', text)
        assert 'integer' in caught.value.problem if kind is int else 'number' in caught.value.problem


@pytest.mark.parametrize('text', ['3000000000', '-3000000000', '9' * 4000])
@pytest.mark.parametrize('flag', ['generate --samples', 'next --count'])
def test_an_integer_of_a_flag_has_32_bits(flag, text, lines):
    *command, name = flag.split()
    with pytest.raises(SystemExit) as stop:
        cli.main([*command, 'runs/nowhere', f'{name}={text}'])
    assert stop.value.code == 2 and [line.partition('=')[0] for line in lines()[1]] == [name]


def test_no_run_or_too_many_runs_are_refused():
    parser = Parser('test', None)
    parser.add_runs(1)
    assert parser.parse_args(['a']).runs == ['a']
    with refuses('RUN'):
        parser.parse_args([])
    with pytest.raises(SystemExit):
        parser.parse_args(['a', 'b'])


def test_a_wrong_folder_lists_the_finished_runs(folders, lines, monkeypatch, tmp_path):
    (tmp_path / 'runs').symlink_to(folders)
    monkeypatch.chdir(tmp_path)
    for command in (['generate'], ['score'], ['next'], ['compare'], ['info']):
        lines()
        with pytest.raises(SystemExit):
            cli.main([*command, 'runs/nowhere'])
        (line,) = lines()[1]
        assert line.startswith("RUN='runs/nowhere': ") and 'runs/counts, runs/network' in line


def test_a_folder_of_runs_lists_those_and_a_file_says_where_a_text_goes(folders, lines, monkeypatch, tmp_path):
    (tmp_path / 'text').write_text('i like dog')
    monkeypatch.chdir(tmp_path)
    for path, hint in (
        (folders, f'finished runs: {folders}/counts, '),
        ('text', 'nplm score RUN < text'),
    ):
        lines()
        with pytest.raises(SystemExit):
            cli.main(['score', str(folders / 'network'), str(path)])
        (line,) = lines()[1]
        assert hint in line


def test_a_mistyped_flag_is_no_run_even_with_a_blank_in_its_value(folders, lines):
    with pytest.raises(SystemExit) as stop:
        cli.main(['next', str(folders / 'network'), '--word=the king'])
    message = 'unrecognized arguments: --word=the king; nplm next --help lists the flags'
    (line,) = lines()[1]
    assert stop.value.code == 2 and line.startswith(message)


@pytest.mark.parametrize(
    'words,near',
    [
        (['scor', 'RUN'], 'score'),
        (['generate', 'RUN', '--promt=x'], '--prompt'),
        (['score', 'RUN', '--tokens=word'], 'words'),
        (['mix', 'RUN', 'RUN', '--to=arap', '--output=x'], 'arpa'),
        (['score', 'RUNS/netwrk'], 'RUNS/network'),
    ],
)
def test_a_mistyped_name_is_answered_by_the_nearest(words, near, folders, lines, monkeypatch, tmp_path):
    (tmp_path / 'runs').symlink_to(folders)
    monkeypatch.chdir(tmp_path)
    words = [word.replace('RUNS', 'runs').replace('RUN', 'runs/network') for word in words]
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    (line,) = lines()[1]
    assert stop.value.code == 2 and line.endswith(f'; did you mean {near.replace("RUNS", "runs")}?')


def test_of_an_arpa_file_the_command_that_makes_a_run_of_it_is_said(
    folders, nplm_command, lines, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    write_arpa(folders / 'counts', tmp_path / 'mix.arpa')
    with pytest.raises(SystemExit):
        cli.main(['info', 'mix.arpa'])
    (line,) = lines()[1]
    assert line.startswith("RUN='mix.arpa': ")
    command, run = re.fullmatch(r'.* with: (.*); then use (.*)', line).groups()
    nplm_command(*shlex.split(command)[len(nplm_words()) :])
    monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(b'i like dog')))
    scored, _ = nplm_command('score', run)
    assert scored[0].startswith('i=')


def test_what_is_said_where_there_is_no_run_names_a_command_of_nplm(lines, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for words in (['score', 'nowhere'], ['runs']):
        with pytest.raises(SystemExit):
            cli.main(words)
        (line,) = lines()[1]
        assert 'launch.py' not in line
        assert words == ['runs'] or line.endswith(f'{shlex.join(nplm_words())} train sentences')
        assert words == ['runs'] or f'{tmp_path}/nowhere does not exist; ' in line


def test_a_command_that_is_interrupted_ends_with_one_line(lines, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Command, 'run', interrupt)
    with pytest.raises(SystemExit) as stop:
        cli.main(['score', 'RUN'])
    assert stop.value.code == 130 and lines() == ([], ['interrupted'])


def test_an_unknown_command_lists_those_there_are(lines):
    with pytest.raises(SystemExit) as stop:
        cli.main(['guess'])
    line = lines()[1][0]
    assert stop.value.code == 2 and line.startswith('guess: ') and 'train, generate, score, ' in line
