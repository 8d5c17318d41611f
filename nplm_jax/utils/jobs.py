"""Large work as tasks whose results are files, in a folder that all workers see; what is done is not done again.

A task writes a folder of its own, which gets its name when it is complete: that name marks it as done. So a worker that
dies leaves nothing that is used, one that comes late finds its task done, and a job that is started again does what has
no marker.
"""

import contextlib
import functools
import json
import os
import pathlib
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, TypeVar

from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import open_atomically, write_atomically
from nplm_jax.utils.progress import progress_bar
from nplm_jax.utils.workers import Workers

Task = TypeVar('Task')
_IDENTITY = 'job.json'


class Job:
    """Tasks in stages, each of which reads what those before it wrote.

    Attributes:
        folder: Where the results are.
    """

    def __init__(self, folder: pathlib.Path, identity: Mapping[str, Any], workers: Workers) -> None:
        """Goes on with the job in a folder if it is the same; else empties the folder.

        Args:
            folder: A folder that no other process uses, and that all workers see under this path.
            identity: What the results depend on, such as the digests of files and the number of pieces.
            workers: Who does the tasks.

        Raises:
            BadInput: The folder cannot be written.
        """
        self.folder, self._workers, self._identity = folder.absolute(), workers, json.dumps(identity)
        with _writing(folder):
            if not self._is_begun():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                write_atomically(folder / _IDENTITY, self._identity)

    def _is_begun(self) -> bool:
        path = self.folder / _IDENTITY
        return path.is_file() and path.read_text() == self._identity

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
        with _writing(self.folder):
            (self.folder / stage).mkdir(exist_ok=True)
        with progress_bar(len(tasks), stage, ' tasks') as bar:
            bar.update(len(tasks) - len(missing))
            for _ in self._workers.map(functools.partial(_perform, function), missing):
                bar.update(1)
        return folders

    def write(self, name: str, write: Callable[[IO[bytes]], object]) -> None:
        """Writes a file of the folder unless it is there. Raises: BadInput when the disk is full."""
        with _writing(self.folder):
            if not (self.folder / name).exists():
                with open_atomically(self.folder / name) as file:
                    write(file)

    def remove(self) -> None:
        """Removes the folder, after its results were read."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _perform(function: Callable[[Any, pathlib.Path], object], item: tuple[Any, pathlib.Path]) -> None:
    """Does a task; runs at a worker."""
    task, folder = item
    with _writing(folder):
        temporary = pathlib.Path(tempfile.mkdtemp(dir=folder.parent, prefix='.'))
        try:
            function(task, temporary)
            os.rename(temporary, folder)
        except OSError:
            if not folder.is_dir():  # else another worker has done it meanwhile
                raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def _writing(folder: pathlib.Path) -> Iterator[None]:
    """Raises BadInput instead of OSError, with the machine on which a folder cannot be written or read."""
    try:
        yield
    except OSError as error:
        raise BadInput(f'{folder}: cannot be used by {socket.gethostname()} ({error.strerror or error})') from None
