"""Archives that reach out of themselves, or unpack to a thousand times their size: refused before they are read."""

import contextlib
import gzip
import io
import tarfile
import zipfile

import pytest
from hostile_test import refusal, within

from nplm_jax.data import brown, download, wikitext2


def zipped(*members, compression=zipfile.ZIP_DEFLATED):
    data = io.BytesIO()
    with zipfile.ZipFile(data, 'w', compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return data.getvalue()


def tarred(*infos):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode='w') as archive:
        for name, kind, target in infos:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            archive.addfile(info)
        info = tarfile.TarInfo(brown.WHEEL_MEMBER[1])
        info.size = 4
        archive.addfile(info, io.BytesIO(b'data'))
    return data.getvalue()


def link(name):
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o120777 << 16
    return info


def encrypted(data):
    """The same zip, its members said to be encrypted."""
    data = bytearray(data)
    for mark, place in ((b'PK\1\2', 8), (b'PK\3\4', 6)):
        at = data.find(mark)
        while at >= 0:
            data[at + place] |= 1
            at = data.find(mark, at + 1)
    return bytes(data)


RAW = f'{wikitext2.WHEEL_FOLDER}/train.raw.gz'
GOOD = [(RAW, gzip.compress(b'a b')), *((f'{wikitext2.WHEEL_FOLDER}/{s}.txt', b'a') for s in ('valid', 'test'))]
STRAY = 'an archive with links or other special files, or absolute or parent paths'


def come_of(monkeypatch, route, data):
    """Why the route failed, as it is told."""

    @contextlib.contextmanager
    def wheel(_requirement):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            yield archive

    monkeypatch.setattr(download, 'wheel', wheel)
    said = io.StringIO()
    with contextlib.redirect_stderr(said), within(60, megabytes=300):
        assert refusal(download.try_sources, 'it', '', {'a wheel': route}, 'no way') == 'no way'
    return said.getvalue()


@pytest.mark.parametrize(
    'data, why',
    [
        (zipped(*GOOD, ('../evil', b'')), STRAY),
        (zipped(*GOOD, ('a/../../evil', b'')), STRAY),
        (zipped(*GOOD, ('/etc/evil', b'')), STRAY),
        (zipped(*GOOD, ('C:\\evil', b'')), STRAY),
        (zipped(*GOOD, ('..\\evil', b'')), STRAY),
        (zipped(*GOOD, (link('evil'), '/etc/passwd')), STRAY),
        (zipped((RAW, bytes(10**8)), *GOOD[1:]), 'train.raw.gz: unpacks to more than 33,554,432 bytes'),
        (zipped((RAW, gzip.compress(bytes(10**8))), *GOOD[1:]), 'a gzip file: unpacks to more than 33,554,432 bytes'),
        (zipped(*GOOD, compression=zipfile.ZIP_LZMA), 'train.raw.gz: packed in another way than wheels are'),
        (encrypted(zipped(*GOOD)), 'is encrypted, password required'),
        (zipped(*GOOD[1:]), 'There is no item named'),
        (zipped(*GOOD)[:-30], 'File is not a zip file'),
    ],
)
def test_a_wheel_that_means_harm(monkeypatch, data, why):
    assert why in come_of(monkeypatch, wikitext2._from_wheel, data)


@pytest.mark.parametrize(
    'tar, why',
    [
        (tarred(('../evil', tarfile.REGTYPE, '')), STRAY),
        (tarred(('/evil', tarfile.REGTYPE, '')), STRAY),
        (tarred(('evil', tarfile.SYMTYPE, '/etc/passwd')), STRAY),
        (tarred(('evil', tarfile.LNKTYPE, brown.WHEEL_MEMBER[1])), STRAY),
        (tarred(('evil', tarfile.FIFOTYPE, '')), STRAY),
        (tarred((brown.WHEEL_MEMBER[1], tarfile.SYMTYPE, '/etc/passwd')), STRAY),
        (tarred()[:514], 'unexpected end of data'),
        (bytes(10**8), 'a gzip file: unpacks to more than 67,108,864 bytes'),
        (tarred()[:2] + bytes(1022), 'bad checksum'),
        (bytes(1024), 'not in the archive'),
    ],
)
def test_a_tar_that_means_harm(monkeypatch, tar, why):
    wheel = zipped((brown.WHEEL_MEMBER[0], gzip.compress(tar)))
    assert why in come_of(monkeypatch, brown._from_wheel, wheel)


def test_archives_that_mean_no_harm(monkeypatch):
    for route, data in (
        (wikitext2._from_wheel, zipped(*GOOD, ('a/', b''))),
        (brown._from_wheel, zipped((brown.WHEEL_MEMBER[0], gzip.compress(tarred(('a', tarfile.DIRTYPE, '')))))),
    ):
        monkeypatch.setattr(download, 'wheel', lambda _, data=data: zipfile.ZipFile(io.BytesIO(data)))
        assert b'data' == route() if route is brown._from_wheel else route()['valid'] == b'a'
