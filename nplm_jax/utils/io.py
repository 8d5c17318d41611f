"""Atomic writes of files, paths of users, and the folder of the cache."""

import contextlib
import errno
import os
import pathlib
from collections.abc import Iterator
from typing import IO

from nplm_jax.utils.errors import BadInput, require


def write_atomically(path: pathlib.Path, data: str | bytes) -> None:
    """Writes a file as `open_atomically` does.

    Args:
        path: The file.
        data: Its content; a string is written as UTF-8.

    Raises:
        OSError: The disk refuses; an earlier file at `path` is unchanged.
    """
    with open_atomically(path) as file:
        file.write(data.encode('utf-8') if isinstance(data, str) else data)


@contextlib.contextmanager
def open_atomically(path: pathlib.Path) -> Iterator[IO[bytes]]:
    """Opens a file to be written atomically: after a crash or on a full disk the old or the new content remains.

    The file has a temporary name beside `path`; when the block ends without an exception, it is flushed and renamed.

    Args:
        path: The file.

    Yields:
        The file, for writing and reading.

    Raises:
        OSError: The disk refuses; an earlier file at `path` is unchanged.
    """
    temporary = path.with_name(f'.{path.name}.{os.getpid()}.tmp')
    try:
        with temporary.open('w+b') as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(folder: pathlib.Path) -> None:
    """Removes the temporary files of killed processes from a folder that no other process is using."""
    for temporary in folder.glob('.*.tmp'):
        temporary.unlink()


def expand(key: str, path: str | os.PathLike[str]) -> pathlib.Path:
    """Resolves a leading ~ in the path that `key` gives, because a shell does not do so after an equals sign.

    Raises:
        BadInput: The home folder is unknown, or no file can have this path, as with a NUL or a name of 256 letters.
    """
    try:
        expanded = pathlib.Path(path).expanduser()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            expanded.lstat()
    except (RuntimeError, ValueError) as error:
        raise BadInput(key, str(error), value=path) from None
    except OSError as error:  # such as a folder that is not this user's: who opens the path says so
        require(error.errno != errno.ENAMETOOLONG, key, str(path), 'is too long for a path')
    return expanded


def cache_folder() -> pathlib.Path:
    """Returns the folder of the cache: $NPLM_JAX_CACHE, $XDG_CACHE_HOME/nplm_jax or ~/.cache/nplm_jax."""
    if folder := os.environ.get('NPLM_JAX_CACHE'):
        return pathlib.Path(folder)
    return pathlib.Path(os.environ.get('XDG_CACHE_HOME') or '~/.cache').expanduser() / 'nplm_jax'
