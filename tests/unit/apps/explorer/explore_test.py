"""Tests the one-line errors of `nplm explore`. The tests in the folder explorer cover the page."""

import socket
import sys
import types

import pytest

from nplm_jax.cli import __main__ as cli

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')

WRONG = [
    (['/nowhere'], "RUN='/nowhere': "),
    (['NETWORK', 'OTHER'], '/other'),
    (['NETWORK', '--port=70000'], '--port=70000: '),
    (['NETWORK', '--host=256.0.0.1', '--port=0'], "--host='256.0.0.1' --port=0: "),
    (['COUNTS', '--tour'], "--tour='modified_kneser_ney': "),
    (['NETWORK', '--tour', '--weights=1'], "--weights='1': "),
    (['/nowhere', '--tour'], '/nowhere: '),
    ([], "RUN='': "),
]


@pytest.fixture
def call(lines):
    def call(*arguments):
        with pytest.raises(SystemExit) as stop:
            cli.main(['explore', '--no_browser', *arguments])
        assert stop.value.code == 2
        return lines()

    return call


@pytest.mark.parametrize('arguments,message', WRONG)
def test_one_clear_line_and_exit_code_two(arguments, message, folders, call, monkeypatch):
    monkeypatch.setitem(sys.modules, 'nicegui', types.ModuleType('nicegui'))  # the toolkit may be missing
    runs = {'COUNTS': str(folders / 'counts'), 'NETWORK': str(folders / 'network'), 'OTHER': str(folders / 'other')}
    for name, folder in runs.items():
        arguments = [a.replace(name, folder) for a in arguments]
    stdout, stderr = call(*arguments)
    assert not stdout and len(stderr) == 1 and message in stderr[0]


def test_a_port_that_is_taken_is_named_and_how_to_find_a_free_one(folders, call):
    with socket.create_server(('127.0.0.1', 0)) as listener:
        port = listener.getsockname()[1]
        _, stderr = call(str(folders / 'network'), f'--port={port}')
    assert len(stderr) == 1
    assert stderr[0].startswith(f"--host='127.0.0.1' --port={port}: ") and '--port=0' in stderr[0]


def test_a_missing_toolkit_is_named(folders, call, monkeypatch):
    monkeypatch.setitem(sys.modules, 'nicegui', None)
    assert 'pip install "nplm-jax[explore]"' in call(f'{folders}/network', '--port=0')[1][0]
