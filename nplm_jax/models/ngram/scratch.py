"""Arrays that may be larger than the memory: small ones in memory, large ones in temporary files that are mapped.

A temporary file has no name in its folder. So the system removes it with the last array that maps it, also when the
process is killed, and no other process can read what is half written.
"""

import mmap
import os
import pathlib
import tempfile
from typing import IO, Any

import numpy as np

from nplm_jax.utils.errors import BadInput

BLOCK = 2**21  # n-grams that are sorted or computed at once: about a quarter of a gigabyte of working memory
_ZEROS = 2**22  # bytes that are written at once
IN_MEMORY = 2**24  # bytes of an array that stays in memory


class Scratch:
    """Makes arrays, and says how many n-grams are computed at once.

    Attributes:
        folder: Where temporary files are; None is the system's folder (TMPDIR).
        block: The number of n-grams that are computed at once.
        in_memory: The size of the largest array that stays in memory, bytes.
    """

    def __init__(self, folder: pathlib.Path | None = None, block: int = BLOCK, in_memory: int = IN_MEMORY) -> None:
        self.folder = folder
        self.block = block
        self.in_memory = in_memory

    def empty(self, size: int, dtype: type[np.generic]) -> np.ndarray:
        """Returns a flat array: uninitialised in memory, zeros in a file.

        Raises:
            BadInput: The disk is full.
        """
        num_bytes = size * np.dtype(dtype).itemsize
        if num_bytes <= self.in_memory:
            return np.empty(size, dtype)
        with self.open() as file:
            try:
                # The blocks are allocated now: a page of a mapped file that the disk cannot hold kills the process.
                _allocate(file, num_bytes)
            except OSError as error:
                raise self.disk_error(error, num_bytes) from None
            return map_file(file, dtype)

    def writer(self, dtype: type[np.generic]) -> 'Writer':
        """Returns a writer of an array whose size is not known yet."""
        return Writer(self, dtype)

    def open(self) -> IO[bytes]:
        """Opens a temporary file without a name. Raises: BadInput when the folder refuses."""
        try:
            return tempfile.TemporaryFile(dir=self.folder, buffering=0)
        except OSError as error:
            raise self.disk_error(error, 0) from None

    def disk_error(self, error: OSError, num_bytes: int) -> BadInput:
        """Returns the error of a folder that cannot hold an array of `num_bytes`."""
        folder = self.folder or tempfile.gettempdir()
        return BadInput(f'{folder}: cannot hold the n-grams ({error.strerror}; {num_bytes:,} bytes of one array)')


class Writer:
    """Appends pieces to an array. It stays in memory up to `Scratch.in_memory`, then it is written to a file."""

    def __init__(self, scratch: Scratch, dtype: type[np.generic]) -> None:
        self._scratch = scratch
        self._dtype = np.dtype(dtype)
        self._pieces: list[np.ndarray] = []
        self._num_bytes = 0
        self._file: IO[bytes] | None = None

    def append(self, piece: np.ndarray) -> None:
        """Appends the values of a piece, in the array's dtype. Raises: BadInput when the disk is full."""
        self._pieces.append(np.ascontiguousarray(piece, self._dtype))
        self._num_bytes += self._pieces[-1].nbytes
        if self._num_bytes > self._scratch.in_memory:
            self._write()

    def finish(self) -> np.ndarray:
        """Returns the array, which can be changed in place."""
        if self._file is None:
            return np.concatenate([np.empty(0, self._dtype), *self._pieces])
        with self._file as file:
            return map_file(file, self._dtype)

    def _write(self) -> None:
        """Moves the pieces in memory to the file."""
        self._file = self._file or self._scratch.open()
        try:
            for piece in self._pieces:
                data = piece.data.cast('B')
                while len(data):
                    data = data[self._file.write(data) :]
        except OSError as error:
            self._file.close()
            raise self._scratch.disk_error(error, self._num_bytes) from None
        self._pieces = []


def map_file(file: IO[bytes], dtype: Any) -> np.ndarray:
    """Returns a file that is not empty as an array whose changes go to the file."""
    return np.frombuffer(mmap.mmap(file.fileno(), 0), dtype)


def _allocate(file: IO[bytes], num_bytes: int) -> None:
    """Fills a file with zeros on the disk. Raises: OSError when the disk is full."""
    if hasattr(os, 'posix_fallocate'):
        os.posix_fallocate(file.fileno(), 0, num_bytes)
        return
    for start in range(0, num_bytes, _ZEROS):  # macOS
        file.write(bytes(min(_ZEROS, num_bytes - start)))
