"""Reads untrusted zip files, and reports damaged files with one-line errors."""

import contextlib
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

from nplm_jax.utils.errors import BadInput, first_line

DAMAGE = (  # exceptions of zipfile for malformed files
    *(zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, OverflowError, LookupError),
    *(struct.error, zlib.error),
)


@contextlib.contextmanager
def open_zip(key: str | os.PathLike[str], problem: str, file: IO[bytes], max_members: int) -> Iterator[zipfile.ZipFile]:
    """Opens a zip file.

    Args:
        key: The name of the file in error messages.
        problem: The description of the problem at the beginning of error messages.
        file: The open file, in binary mode.
        max_members: The maximum number of members.

    Yields:
        The zip file, for reading.

    Raises:
        BadInput: The file has too many members or is damaged, which may be detected only within the block.
        OSError: The file cannot be read, or a write within the block fails.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            if (members := len(archive.infolist())) > max_members:
                raise BadInput(key, f'{problem} (the archive has {members:,} members; the maximum is {max_members:,})')
            yield archive
    except BadInput:
        raise
    except DAMAGE as error:
        raise BadInput(key, f'{problem} ({first_line(error)[:200]})') from None
