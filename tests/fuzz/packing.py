"""Small archives for the search: made, and one of their members replaced."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable

GZIP = (gzip.decompress, lambda _data, inner: gzip.compress(inner, mtime=0))


def make_zip(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, 'w', zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return packed.getvalue()


def unzip(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def make_tar(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode='w', format=tarfile.PAX_FORMAT) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = len(data), {'comment': 'é'}
            archive.addfile(info, io.BytesIO(data))
    return packed.getvalue()


def inside(name: str) -> tuple[Callable[[bytes], bytes], Callable[[bytes, bytes], bytes]]:
    """How one member of a zip is taken out, and put back."""
    return (lambda data: unzip(data)[name], lambda data, inner: make_zip({**unzip(data), name: inner}))
