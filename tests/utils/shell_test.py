"""Command lines that can be copied name what runs here."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from nplm_jax.utils import shell


@pytest.fixture
def environments(tmp_path, monkeypatch):
    """Two environments whose Python is one file, as virtual environments have it; the first is in use."""
    for name in ('one', 'two'):
        (tmp_path / name / 'bin').mkdir(parents=True)
        for python in ('python', 'python3'):
            (tmp_path / name / 'bin' / python).symlink_to(sys.executable)
    monkeypatch.setattr(sys, 'executable', str(tmp_path / 'one' / 'bin' / 'python3'))
    return tmp_path


def test_python_is_named_so_where_the_shell_finds_this_one(environments, monkeypatch):
    monkeypatch.setenv('PATH', str(environments / 'one' / 'bin'))
    assert shell.python_command() == 'python'
    monkeypatch.setenv('PATH', str(environments / 'two' / 'bin'))
    assert shell.python_command() == str(environments / 'one' / 'bin' / 'python3')


def test_nplm_is_the_command_beside_this_python_or_the_module(environments, monkeypatch):
    monkeypatch.setenv('PATH', '')
    monkeypatch.chdir(shell._ROOT)
    assert shell.nplm_command()[1:] == ['-m', 'nplm_jax.cli']
    monkeypatch.chdir(environments)  # where Python does not find a package that is not installed
    assert shell.nplm_command()[:2] == ['env', f'PYTHONPATH={shell._ROOT}']
    (nplm := environments / 'one' / 'bin' / 'nplm').touch(0o755)
    assert shell.nplm_command() == [str(nplm)]
    monkeypatch.setenv('PATH', str(nplm.parent))
    assert shell.nplm_command() == ['nplm']


def test_a_command_line_is_quoted_for_a_shell():
    words = ['printf', '%s|', "it's", 'a b', pathlib.Path('c$d')]
    done = subprocess.run([shutil.which('sh'), '-c', shell.command_line(words)], capture_output=True, text=True)
    assert done.stdout == "it's|a b|c$d|"


def test_streams_that_the_shell_closed_can_be_printed_to(monkeypatch):
    for name in ('stdout', 'stderr'):
        monkeypatch.setattr(sys, name, None)
    shell.open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        assert stream.name == os.devnull
        print('seen by nobody', file=stream, flush=True)
        stream.close()


def test_streams_that_are_open_stay_as_they_are():
    before = sys.stdout, sys.stderr
    shell.open_closed_streams()
    assert (sys.stdout, sys.stderr) == before
