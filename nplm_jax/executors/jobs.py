"""Large work as tasks whose results are files, in a folder that all workers see; what is done is not done again.

A task writes a folder of its own, which gets its name when it is complete: that name marks it as done. So a worker that
dies leaves nothing that is used, one that comes late finds its task done, and a job that is started again does only
what has no marker.
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

from nplm_jax.config.plugins import package_digest
from nplm_jax.executors.workers import Workers
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import open_atomically, write_atomically
from nplm_jax.utils.progress import progress_bar

Task = TypeVar('Task')
_IDENTITY = 'job.json'
_ARRAY = '\0array'  # the key of an array's number in JSON; no word has this character
_ITEMS = 4  # of `Job.map` that a task takes


class Job:
    """Tasks in stages, each of which reads what those before it wrote.

    Attributes:
        folder: Where the results are.
    """

    def __init__(self, folder: pathlib.Path, identity: Mapping[str, Any], workers: Workers) -> None:
        """Goes on with the job in a folder if it is the same; else empties the folder.

        Args:
            folder: A folder that no other process uses, and that all workers see under this path.
            identity: What the results depend on beside this package: digests of files, and how the work is cut.
            workers: Who does the tasks.

        Raises:
            BadInput: The folder cannot be written, or a worker does not see it or has another version of this package.
        """
        self.folder, self._workers, self._num_maps = folder.absolute(), workers, itertools.count()
        # Files of this machine alone are not synchronised, and count only until it starts again.
        start = '' if workers.are_remote else _start_of_machine()
        self._identity = json.dumps({'package': _package_digest(), 'start': start, **identity})
        with _using(folder):
            if _read_identity(self.folder) != self._identity:
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                write_atomically(folder / _IDENTITY, self._identity)
        workers.on_each(functools.partial(_check_worker, self.folder, self._digest()))

    def _digest(self) -> str:
        """Returns what other machines compare with what they see; '' where there are none."""
        return _sha256(self._identity) if self._workers.are_remote else ''

    def run(
        self, stage: str, function: Callable[[Task, pathlib.Path], object], tasks: Sequence[Task]
    ) -> list[pathlib.Path]:
        """Does the tasks of a stage that are not done.

        Args:
            stage: Its name, for the folder and the progress bar.
            function: Does a task: writes files into a folder, and nothing else. It may be called twice for a task.
            tasks: What it takes: paths and numbers, since they are sent to the workers.

        Returns:
            The folder of each task.

        Raises:
            BadInput: A folder cannot be written, or the workers are lost.
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
        """Yields `function` of each item, in the order of the items, as `map` does; both go through files.

        Args:
            function: A function of a module, or a `functools.partial` of one.
            items: What JSON can hold; a tuple comes as a list. They are read only if the folder does not have them.

        Returns:
            The results: what JSON can hold, with sets, which come as lists, and arrays.
        """
        name = f'map {next(self._num_maps)}'
        for folder in self.run(name, functools.partial(_map_items, function), self._cut(name, items)):
            yield from _load_results(folder)

    def _cut(self, name: str, items: Iterable[Any]) -> list[pathlib.Path]:
        """Writes the items that each task takes, and the number of tasks last."""
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
        """Writes a file of the folder unless it is there. Raises: BadInput when the disk is full."""
        with _using(self.folder):
            if not (self.folder / name).exists():
                with open_atomically(self.folder / name) as file:
                    write(file)

    def remove(self) -> None:
        """Removes the folder, after its results were read."""
        shutil.rmtree(self.folder, ignore_errors=True)


# --- at the workers ---------------------------------------------------------------------------------------------------


def _check_worker(folder: pathlib.Path, digest: str) -> None:
    """Raises BadInput unless this process sees the job with this digest in a folder, and runs the same packages."""
    with _using(folder):
        found = _read_identity(folder)
    if found is None or _sha256(found) != digest:
        is_missing = 'does not see this folder' if found is None else 'sees another job in this folder'
        raise BadInput(folder, f'the worker on {socket.gethostname()} {is_missing}; all workers must share its files')
    if json.loads(found)['package'] != _package_digest():
        raise BadInput(
            socket.gethostname(), 'this worker has another version of nplm-jax, Python or a package; start it again'
        )


def _perform(digest: str, function: Callable[[Any, pathlib.Path], object], item: tuple[Any, pathlib.Path]) -> None:
    """Does a task; `digest` is what other machines compare."""
    task, folder = item
    if digest:
        _check_worker(folder.parents[1], digest)
    with _using(folder):
        temporary = pathlib.Path(tempfile.mkdtemp(dir=folder.parent, prefix='.'))
        try:
            function(task, temporary)
            for file in temporary.iterdir() if digest else ():
                _sync(file)
            os.rename(temporary, folder)
        except OSError:
            if not folder.is_dir():  # else another worker has done it meanwhile
                raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _sync(file: pathlib.Path) -> None:
    """Brings a file to the disk, so that the folder is whole after a crash of the machine too."""
    with file.open('rb') as opened:
        os.fsync(opened.fileno())


def _map_items(function: Callable[[Any], Any], file: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes `function` of each item of a file."""
    arrays: list[np.ndarray] = []

    def encode(value: Any) -> Any:
        """Returns what JSON can hold instead of an array or a set."""
        if isinstance(value, np.ndarray):
            arrays.append(value)
            return {_ARRAY: len(arrays) - 1}
        if isinstance(value, (set, frozenset)):
            return sorted(value)
        raise TypeError(f'{type(value).__name__}: JSON cannot hold it, which {function} returned')

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
    """Returns what differs after each start of this machine; '' where the system does not tell."""
    file = pathlib.Path('/proc/sys/kernel/random/boot_id')
    return file.read_text() if file.exists() else ''


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@functools.cache
def _package_digest() -> str:
    return package_digest()


@contextlib.contextmanager
def _using(folder: pathlib.Path) -> Iterator[None]:
    """Raises BadInput instead of OSError, with the machine on which a folder cannot be used."""
    try:
        yield
    except OSError as error:
        raise BadInput(folder, f'cannot be used on {socket.gethostname()} ({error.strerror or error})') from None
