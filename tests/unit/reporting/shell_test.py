"""Tests that suggested command lines name the program that is running."""

import io
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from nplm_jax.reporting import shell


@pytest.fixture
def environments(tmp_path, monkeypatch):
    """Two environments that share one Python file, like virtual environments; the first is in use."""
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
    monkeypatch.chdir(environments)  # where Python does not find uninstalled packages
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
    shell.prepare_streams()
    for stream in (sys.stdout, sys.stderr):
        assert stream.name == os.devnull
        print('seen by nobody', file=stream, flush=True)
        stream.close()


def test_an_input_that_the_shell_closed_is_empty(monkeypatch):
    monkeypatch.setattr(sys, 'stdin', None)
    shell.prepare_streams()
    with sys.stdin as stream:
        assert stream.buffer.read() == b''


def test_streams_that_are_open_stay_as_they_are():
    before = sys.stdin, sys.stdout, sys.stderr
    shell.prepare_streams()
    assert (sys.stdin, sys.stdout, sys.stderr) == before


@pytest.mark.parametrize('encoding', ['ascii', 'latin-1', 'utf-8'])
def test_output_is_utf8_and_what_the_encoding_of_messages_lacks_is_escaped(encoding, monkeypatch):
    for name in ('stdout', 'stderr'):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BytesIO(), encoding))
    shell.prepare_streams()
    for stream, used in ((sys.stdout, 'utf-8'), (sys.stderr, encoding)):
        print('caf\xe9 \u4e2d \udcff', file=stream, flush=True)  # the last one represents a byte of a file name
        assert stream.buffer.getvalue() == 'caf\xe9 \u4e2d \udcff\n'.encode(used, 'backslashreplace')


PASSWORDS = [
    'postgresql://u:sekret@host/db',
    'postgresql+psycopg://u:p@sekret/word@host/db',
    'postgresql://u:p@ss/sekret@host/db',
    'postgresql://u:sek/ret@host/db',
    'postgresql://host=h dbname=d password=sekret',
    'postgresql://host=h password=sek@ret',
    'host=h password=sekret',
    'u:sekret@host/db',
    'postgresql://u:p#sekret@host:5432/db',
    'postgresql://host/db?password=sekret',
    'postgresql://u@host/db;password=sekret',
    'sekret',
]


@pytest.mark.parametrize('url', PASSWORDS)
@pytest.mark.parametrize('words', [['--storage={}'], ['--storage', '{}'], ['-storage={}']])
def test_a_command_line_shows_no_password_of_a_database(url, words):
    shown = shell.hide_passwords(shell.command_line(['launch.py', *(word.format(url) for word in words), '--search=2']))
    assert not {'sekret', 'sek', 'ret'} & set(re.split(r'\W', shown)) and shown.endswith(' --search=2')
    assert shown.startswith('launch.py ')


def test_a_url_without_a_password_stays():
    command = 'launch.py --storage=postgresql://me@host:5432/trials?sslmode=require --scheduler=tcp://host:1'
    assert shell.hide_passwords(command) == shell.command_line(command.split())
