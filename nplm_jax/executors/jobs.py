"""A resumable task queue on a shared file system.

Each task writes to a temporary folder and renames the folder when the task is complete. A task counts as done only once
its folder has its final name, so the partial results of a killed worker are never used. If two workers run the same
task, the result of the first to finish is kept. A restarted job runs only the unfinished tasks.
"""

import contextlib
import functools
import hashlib
import itertools
import json
import os
import pathlib
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, TypeVar

import numpy as np

from nplm_jax.executors.workers import Workers
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import open_atomically, write_atomically
from nplm_jax.utils.packages import package_digest
from nplm_jax.utils.progress import progress_bar

Task = TypeVar('Task')
_IDENTITY = 'job.json'
_ARRAY = '\0array'  # the JSON key of an array's index; words never contain NUL
_ITEMS = 4  # items per task of `Job.map`


class Job:
    """A sequence of stages. Each stage runs tasks in parallel and can read the results of earlier stages.

    Attributes:
        folder: The folder that contains the results.
    """

    def __init__(self, folder: pathlib.Path, identity: Mapping[str, Any], workers: Workers) -> None:
        """Resumes the job in a folder if its recorded identity is the same. Otherwise, empties the folder.

        Args:
            folder: A folder that no other job uses and that all workers can access under the same path.
            identity: JSON-serializable values that determine the results, such as file digests and task sizes.
            workers: The executor that runs the tasks.

        Raises:
            BadInput: The folder is not writable, a worker cannot access the folder, or a worker runs another version of
                this package.
        """
        self.folder, self._workers, self._num_maps = folder.absolute(), workers, itertools.count()
        # Local jobs do not flush their files to the disk. A crash may damage the files, so they are not used after a
        # reboot.
        start = '' if workers.are_remote else _start_of_machine()
        self._identity = json.dumps({'package': _package_digest(), 'start': start, **identity})
        with _using(folder):
            if _read_identity(self.folder) != self._identity:
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                write_atomically(folder / _IDENTITY, self._identity)
        workers.on_each(functools.partial(_check_worker, self.folder, self._digest()))

    def _digest(self) -> str:
        """Returns the digest with which remote workers verify the folder, or '' for local workers."""
        return _sha256(self._identity) if self._workers.are_remote else ''

    def run(
        self, stage: str, function: Callable[[Task, pathlib.Path], object], tasks: Sequence[Task]
    ) -> list[pathlib.Path]:
        """Runs the unfinished tasks of a stage.

        Args:
            stage: The name of the stage, used for its folder and its progress bar.
            function: A function that runs a task and writes its results into the given folder. It must have no other
                side effects, because it may run twice for the same task.
            tasks: The tasks to send to the workers. Each task consists of paths and numbers.

        Returns:
            The result folder of each task.

        Raises:
            BadInput: A folder cannot be written, or the connection to the workers is lost.
        """
        folders = [self.folder / stage / f'{number:06}' for number in range(len(tasks))]
        missing = [(task, folder) for task, folder in zip(tasks, folders) if not folder.exists()]
        with _using(self.folder):
            (self.folder / stage).mkdir(exist_ok=True)
        with progress_bar(len(tasks), stage, ' tasks') as bar:
            bar.update(len(tasks) - len(missing))
            for _ in self._workers.map(functools.partial(_perform, self._digest(), function), missing):
                bar.update(1)
        return folders

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """Applies a function to items on the workers. Items and results are exchanged through files in the folder.

        Args:
            function: A module-level function, or a `functools.partial` of one.
            items: JSON-serializable items. Tuples are passed to the function as lists. The items are not read if the
                folder already contains them.

        Returns:
            The results in the order of the items. They may be JSON-serializable values, arrays or sets. Sets are
            returned as sorted lists.
        """
        name = f'map {next(self._num_maps)}'
        for folder in self.run(name, functools.partial(_map_items, function), self._cut(name, items)):
            yield from _load_results(folder)

    def _cut(self, name: str, items: Iterable[Any]) -> list[pathlib.Path]:
        """Writes one file of items per task, and then a file with the number of tasks. Returns the item files."""
        number_file = self.folder / f'{name}.number'
        with _using(self.folder):
            if not number_file.exists():
                iterator, number = iter(items), 0
                while batch := list(itertools.islice(iterator, _ITEMS)):
                    write_atomically(self.folder / f'{name}.{number:06}.json', json.dumps(batch))
                    number += 1
                write_atomically(number_file, str(number))
            return [self.folder / f'{name}.{number:06}.json' for number in range(int(number_file.read_text()))]

    def write(self, name: str, write: Callable[[IO[bytes]], object]) -> None:
        """Writes a file in the folder unless the file exists. Raises BadInput if the file cannot be written."""
        with _using(self.folder):
            if not (self.folder / name).exists():
                with open_atomically(self.folder / name) as file:
                    write(file)

    def remove(self) -> None:
        """Removes the folder and the results in it."""
        shutil.rmtree(self.folder, ignore_errors=True)


# --- on the workers ---------------------------------------------------------------------------------------------------


def _check_worker(folder: pathlib.Path, digest: str) -> None:
    """Raises BadInput unless this worker sees the same job in the folder and has the same package versions."""
    with _using(folder):
        found = _read_identity(folder)
    if found is None or _sha256(found) != digest:
        is_missing = 'cannot access this folder' if found is None else 'finds another job in this folder'
        raise BadInput(
            folder, f'the worker on {socket.gethostname()} {is_missing}; all workers must have access to the same files'
        )
    if json.loads(found)['package'] != _package_digest():
        raise BadInput(
            socket.gethostname(),
            'the worker runs a different version of nplm-jax, Python or another package; restart it',
        )


def _perform(digest: str, function: Callable[[Any, pathlib.Path], object], item: tuple[Any, pathlib.Path]) -> None:
    """Runs a task on a worker. If `digest` is not empty, the worker first verifies the folder."""
    task, folder = item
    if digest:
        _check_worker(folder.parents[1], digest)
    with _using(folder):
        temporary = pathlib.Path(tempfile.mkdtemp(dir=folder.parent, prefix='.'))
        try:
            function(task, temporary)
            for file in temporary.iterdir() if digest else ():
                with file.open('rb') as opened:  # so that the file survives a crash of the machine
                    os.fsync(opened.fileno())
            os.rename(temporary, folder)
        except OSError:
            if not folder.is_dir():  # otherwise another worker finished the task first
                raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _map_items(function: Callable[[Any], Any], file: pathlib.Path, folder: pathlib.Path) -> None:
    """Applies a function to the items in a file and writes the results."""
    arrays: list[np.ndarray] = []

    def encode(value: Any) -> Any:
        """Returns a JSON-serializable replacement for an array or a set."""
        if isinstance(value, np.ndarray):
            arrays.append(value)
            return {_ARRAY: len(arrays) - 1}
        if isinstance(value, (set, frozenset)):
            return sorted(value)
        raise TypeError(f'{function} returned a {type(value).__name__}, which is not JSON-serializable')

    text = json.dumps(list(map(function, json.loads(file.read_text()))), default=encode)
    for number, array in enumerate(arrays):
        np.save(folder / f'{number}.npy', array, allow_pickle=False)
    (folder / 'results.json').write_text(text)


def _load_results(folder: pathlib.Path) -> list[Any]:
    def decode(value: dict[str, Any]) -> Any:
        return np.load(folder / f'{value[_ARRAY]}.npy', allow_pickle=False) if [*value] == [_ARRAY] else value

    with _using(folder):
        return list(json.loads((folder / 'results.json').read_text(), object_hook=decode))


def _read_identity(folder: pathlib.Path) -> str | None:
    path = folder / _IDENTITY
    return path.read_text() if path.is_file() else None


def _start_of_machine() -> str:
    """Returns the boot id of this machine, or '' if the system has none."""
    file = pathlib.Path('/proc/sys/kernel/random/boot_id')
    return file.read_text() if file.exists() else ''


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def _package_digest() -> str:
    return package_digest()


@contextlib.contextmanager
def _using(folder: pathlib.Path) -> Iterator[None]:
    """Converts an OSError to a BadInput that names the folder and this machine."""
    try:
        yield
    except OSError as error:
        raise BadInput(folder, f'cannot be used on {socket.gethostname()} ({error.strerror or error})') from None
