"""Zip files that a stranger may have written: read in pieces of bounded size, and damage is one line."""

import contextlib
import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

from nplm_jax.utils.errors import BadInput, first_line

PIECE = 2**22  # bytes that are read at once; the list of members is read at once, so that it is no longer
_DAMAGE = (  # what zipfile raises for a strange file
    *(zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, OverflowError, LookupError),
    *(struct.error, zlib.error),
)


class _Bounded(io.BufferedReader):
    """A file that is read in pieces."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > PIECE:
            raise zipfile.BadZipFile(f'its list of members is longer than {PIECE:,} bytes')
        return super().read(PIECE if size is None or size < 0 else size)

    def seek(self, target: int, whence: int = 0, /) -> int:
        if whence == 0 and target < 0:  # the system would call it an error of the disk
            raise zipfile.BadZipFile('it names a place before its beginning')
        return super().seek(target, whence)


@contextlib.contextmanager
def open_zip(problem: str, file: IO[bytes], max_members: int) -> Iterator[zipfile.ZipFile]:
    """Opens a zip file.

    Args:
        problem: The beginning of error messages.
        file: The file.
        max_members: The most members that it may have.

    Yields:
        The zip file, for reading.

    Raises:
        BadInput: It is damaged, also if this is found in the block, or has too many members.
        OSError: The disk refuses to read, or whatever the block does to write.
    """
    try:
        with zipfile.ZipFile(_Bounded(io.FileIO(file.fileno(), closefd=False))) as archive:
            if (members := len(archive.infolist())) > max_members:
                raise BadInput(f'{problem} (it has {members:,} members; {max_members:,} at most)')
            yield archive
    except BadInput:
        raise
    except _DAMAGE as error:
        raise BadInput(f'{problem} ({first_line(error)[:200]})') from None
