"""Reads and writes packed models: zip files with everything needed to use the model of a finished run.

The members of the zip file are JSON, text and arrays in safetensors format. They are sorted by name and stored without
compression or dates, so packing the same run always produces the same bytes. The zip comment contains the format
version and the SHA-256 of all preceding bytes. A packed model is unpacked only once, into an ordinary run folder in the
cache, and the SHA-256 is verified only then. The model and the vocabulary in this folder have their own checksums,
which are verified each time. The folder is found by the SHA-256 and by the names and CRCs of the members.
"""

import hashlib
import mmap
import os
import pathlib
import re
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from typing import IO

from nplm_jax.data.zips import open_zip
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import cache_folder, open_atomically
from nplm_jax.utils.untrusted import open_regular

SUFFIX, FORMAT = '.nplm', 1
PARAMETERS = 'parameters.safetensors'  # the parameters of a network from its best checkpoint
_COMMENT = 'nplm-jax model, format {}, sha256 '
_DIGITS = 64  # hexadecimal digits of a SHA-256
_MEMBER = re.compile(r'(spelling/)?[a-zA-Z]\w*(\.\w+){1,2}')  # spelling/ is a run inside the run folder
_MAX_MEMBERS = 100


def write(path: pathlib.Path, files: Mapping[str, pathlib.Path]) -> None:
    """Writes a packed model atomically.

    Args:
        path: The file to write.
        files: The files to pack, by member name.

    Raises:
        OSError: Writing failed. An existing file at `path` is then unchanged.
    """
    with open_atomically(path) as file:
        with zipfile.ZipFile(file, 'w', zipfile.ZIP_STORED) as archive:
            archive.comment = (_COMMENT.format(FORMAT) + '0' * _DIGITS).encode()
            for name, source in sorted(files.items()):
                entry = zipfile.ZipInfo(name)
                entry.create_system, entry.external_attr = 3, (stat.S_IFREG | 0o644) << 16
                entry.file_size = source.stat().st_size
                with archive.open(entry, 'w') as member, source.open('rb') as content:
                    shutil.copyfileobj(content, member)
        digest = _digest(file)
        file.seek(-_DIGITS, os.SEEK_END)
        file.write(digest.encode())


def is_packed(path: pathlib.Path) -> bool:
    """Returns whether a file is a packed model, according to its suffix or its content."""
    if path.suffix == SUFFIX or not path.is_file():
        return path.is_file()
    try:
        with open_regular(str(path), path) as file:
            return _find_comment(file) is not None
    except BadInput:  # an unreadable file, which the function that reads it next reports
        return False


def unpack(path: pathlib.Path) -> pathlib.Path:
    """Unpacks a model into the cache unless it is already there. Returns the folder, which is named after the file.

    Raises:
        BadInput: The file is unreadable or damaged, has another format or unexpected members, or writing failed.
    """
    name = f'RUN={str(path)!r}'
    with open_regular(name, path) as file:
        digest = _read_digest(path, file)
        with open_zip(name, 'is not a packed model', file, _MAX_MEMBERS) as archive:
            # The CRCs change if another program replaces a member without updating the comment.
            contents = [digest, *((entry.filename, entry.CRC) for entry in archive.infolist())]
            folder = cache_folder() / 'models' / hashlib.sha256(repr(contents).encode()).hexdigest()
            folder /= path.stem.lstrip('.') or 'model'
            if folder.is_dir():
                return folder
            problem = 'is damaged (checksum mismatch); pack or download the model again'
            require(digest == _digest(file), 'RUN', str(path), problem)
            _check_members(path, archive.infolist(), file.seek(0, os.SEEK_END))
            try:
                _extract(archive, folder)
            except OSError as error:
                raise BadInput(name, f'cannot be unpacked into {folder.parent} ({error.strerror})') from None
    return folder


def _read_digest(path: pathlib.Path, file: IO[bytes]) -> str:
    """Returns the digest in the comment of a packed model. Raises BadInput if the format is wrong."""
    match = _find_comment(file)
    if not match:
        raise BadInput('RUN', 'is not a model written by nplm pack, or is truncated', value=str(path))
    if int(match[1]) != FORMAT:
        raise BadInput('RUN', f'has format {int(match[1])}, but this version supports only {FORMAT}', value=str(path))
    return match[2].decode()


def _find_comment(file: IO[bytes]) -> re.Match[bytes] | None:
    """Matches the zip comment of a packed model, which gives its format and digest. Returns None for other files."""
    comment = re.escape(_COMMENT).replace(r'\{\}', r'(\d+)').encode() + rb'([0-9a-f]{64})'
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - len(_COMMENT) - _DIGITS - 20))
    return re.search(comment + rb'\Z', file.read())


def _check_members(path: pathlib.Path, entries: Iterable[zipfile.ZipInfo], size: int) -> None:
    """Raises BadInput if a member is unexpected, or if all members together exceed `size`, the size of the file."""
    names = set()
    for entry in entries:
        is_plain = stat.S_ISREG(entry.external_attr >> 16) and entry.compress_type == zipfile.ZIP_STORED
        if not _MEMBER.fullmatch(entry.filename) or not is_plain or entry.filename in names:
            raise BadInput('RUN', f'contains the unexpected file {entry.filename[:100]!r}', value=str(path))
        names.add(entry.filename)
        size -= entry.file_size
    if size < 0:
        raise BadInput('RUN', 'declares more bytes than the file contains', value=str(path))


def _extract(archive: zipfile.ZipFile, folder: pathlib.Path) -> None:
    """Unpacks the members into a new folder atomically."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        new = pathlib.Path(temporary) / folder.name
        for name in archive.namelist():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            with archive.open(name) as member, open_atomically(new / name) as out:  # flushed to the disk
                shutil.copyfileobj(member, out)
        try:
            new.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise, another process was faster
                raise


def _digest(file: IO[bytes]) -> str:
    """Returns the SHA-256 of a packed model, excluding the digest at the end of the file."""
    file.flush()
    return hashlib.sha256(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))[:-_DIGITS]).hexdigest()
