"""Tests untrusted run folders with invalid sizes."""

import json
import shutil

import pytest
from helpers import numbers

from nplm_jax.cli import __main__ as cli
from nplm_jax.config.records import to_record
from tests.nightly.fuzz.folders import limited


@pytest.fixture
def run(folders, tmp_path):
    """A copy of the folder of a network."""
    return shutil.copytree(folders / 'network', tmp_path / 'run')


def refuse(lines, *arguments):
    """Returns the one-line error with which a command rejects the folder, within limits of time and memory."""
    lines()
    with limited(), pytest.raises(SystemExit) as end:
        cli.main(list(map(str, arguments)))
    stdout, stderr = lines()
    assert end.value.code == 2 and stdout == [] and len(stderr) == 1, stderr
    return stderr[0]


def test_a_network_larger_than_the_memory_is_refused_before_anything_is_read(run, lines):
    config = json.loads((run / 'config.json').read_text())
    config['model'] |= {'h': 10**6, 'm': 10**6}
    config = to_record({key: value for key, value in config.items() if key not in ('format', 'sha256')})
    (run / 'config.json').write_text(json.dumps(config))
    message = refuse(lines, 'next', run)
    assert message.startswith(f'{run}: ') and numbers(message.removeprefix(f'{run}: '))[0] == '8,000'
