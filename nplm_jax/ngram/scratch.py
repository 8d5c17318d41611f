"""Stores large arrays in temporary files, and divides computations into blocks.

Small arrays stay in memory, and large arrays are memory-mapped temporary files. These files have no names. The system
therefore deletes a file as soon as no array maps it, even if the process is killed, and other processes cannot read
partial data.
"""

import contextlib
import dataclasses
import mmap
import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, Protocol

import numpy as np

from nplm_jax.utils.errors import BadInput

BLOCK = 2**21  # number of n-grams sorted or computed at once, in about 256 MB of working memory
IN_MEMORY = 2**24  # size of the largest array kept in memory, bytes


class Job(Protocol):
    """A set of tasks that write their results to folders; `executors.jobs.Job` is a resumable implementation.

    Attributes:
        folder: The folder of the results.
    """

    @property
    def folder(self) -> pathlib.Path:
        """The folder of the results."""
        ...

    def run(
        self, stage: str, function: Callable[[Any, pathlib.Path], object], tasks: Sequence[Any]
    ) -> list[pathlib.Path]:
        """Calls `function(task, folder)` for each task of a stage, with a folder for each task. Returns the folders."""
        ...

    def write(self, name: str, write: Callable[[IO[bytes]], object]) -> None:
        """Writes a file in the folder."""
        ...


@dataclasses.dataclass(frozen=True)
class Scratch:
    """An allocator of arrays, which also sets the number of n-grams computed at once.

    Large jobs run in this process; `shared_scratch.SharedScratch` distributes them over processes or machines.

    Attributes:
        folder: The folder of temporary files, or None for the system's folder (TMPDIR).
        block: The number of n-grams computed at once.
        in_memory: The size of the largest array kept in memory, bytes.
    """

    folder: pathlib.Path | None = None
    block: int = BLOCK
    in_memory: int = IN_MEMORY

    def zeros(self, size: int, dtype: type[np.generic]) -> np.ndarray:
        """Returns a flat array of zeros. Raises BadInput if the disk is full."""
        writer = self.writer(dtype)
        for block in blocks(size, self.block):
            # Writing zeros allocates the disk space now. On a full disk, a later write to the mapped memory would kill
            # the process (SIGBUS) instead of raising an exception.
            writer.append(np.zeros(block.stop - block.start, dtype))
        return writer.finish()

    def writer(self, dtype: type[np.generic]) -> 'Writer':
        """Returns a writer for an array of unknown size."""
        return Writer(self, dtype)

    @contextlib.contextmanager
    def open_job(self, words_L: np.ndarray, identity: Mapping[str, Any]) -> Iterator[Job]:
        """Opens a job in a temporary folder, which is deleted at the end of the `with` block.

        Args:
            words_L: The words that the job counts.
            identity: All other inputs that determine the results.

        Raises:
            BadInput: The disk is full.
        """
        with _disk_errors(self, 'the n-grams'), tempfile.TemporaryDirectory(dir=self.folder) as folder:
            yield _LocalJob(pathlib.Path(folder))


@dataclasses.dataclass(frozen=True)
class _LocalJob:
    """A `Job` that runs in this process."""

    folder: pathlib.Path

    def run(
        self, stage: str, function: Callable[[Any, pathlib.Path], object], tasks: Sequence[Any]
    ) -> list[pathlib.Path]:
        """See `Job.run`."""
        folders = [self.folder / stage / str(number) for number in range(len(tasks))]
        for task, folder in zip(tasks, folders):
            folder.mkdir(parents=True)
            function(task, folder)
        return folders

    def write(self, name: str, write: Callable[[IO[bytes]], object]) -> None:
        """See `Job.write`."""
        with (self.folder / name).open('wb') as file:
            write(file)


SCRATCH = Scratch()  # in the system's temporary folder


class Writer:
    """A chunk-wise writer of an array. The array moves from memory to a file when it exceeds `Scratch.in_memory`."""

    def __init__(self, scratch: Scratch, dtype: type[np.generic]) -> None:
        self._scratch = scratch
        self._dtype = dtype
        folder = None if scratch.folder is None else str(scratch.folder)
        self._file = tempfile.SpooledTemporaryFile(max(scratch.in_memory, 1), dir=folder)
        self._num_bytes = 0

    def __del__(self) -> None:
        with contextlib.suppress(OSError):  # flushing fails on a full disk
            self._file.close()

    def append(self, chunk: np.ndarray) -> None:
        """Appends the values of a chunk, in the array's dtype. Raises BadInput if the disk is full."""
        data = np.ascontiguousarray(chunk, self._dtype).view(np.uint8).data
        self._num_bytes += data.nbytes
        with self._errors():
            self._file.write(data)

    def finish(self) -> np.ndarray:
        """Returns the array, which is writable, and closes the writer."""
        with self._errors(), self._file as file:
            if self._num_bytes > self._scratch.in_memory:
                file.flush()
                return np.frombuffer(mmap.mmap(file.fileno(), 0), self._dtype)
            file.seek(0)
            return np.frombuffer(bytearray(file.read()), self._dtype)

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return _disk_errors(self._scratch, f'an n-gram array of {self._num_bytes:,} bytes')


@contextlib.contextmanager
def _disk_errors(scratch: Scratch, content: str) -> Iterator[None]:
    """Converts an OSError within a `with` block to a BadInput, which says that the folder cannot hold `content`."""
    try:
        yield
    except OSError as error:
        folder = scratch.folder or tempfile.gettempdir()
        raise BadInput(folder, f'cannot hold {content} ({error.strerror or error})') from None


def blocks(size: int, block: int) -> Iterator[slice]:
    """Yields consecutive slices of at most `block` elements that cover `size` elements."""
    for start in range(0, size, block):
        yield slice(start, min(start + block, size))
