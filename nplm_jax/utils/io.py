"""Writes files atomically, expands user paths, and finds the cache folder."""

import contextlib
import errno
import os
import pathlib
from collections.abc import Iterator
from typing import IO

from nplm_jax.utils.errors import BadInput, require


def write_atomically(path: pathlib.Path, data: str | bytes) -> None:
    """Writes a file atomically; see `open_atomically`.

    Args:
        path: The path of the file.
        data: The new content. Strings are encoded as UTF-8.

    Raises:
        OSError: The file cannot be written. An existing file at `path` is unchanged.
    """
    with open_atomically(path) as file:
        file.write(data.encode('utf-8') if isinstance(data, str) else data)


@contextlib.contextmanager
def open_atomically(path: pathlib.Path) -> Iterator[IO[bytes]]:
    """Opens a file for an atomic write, which replaces the whole content of `path` or leaves it unchanged.

    The `with` block writes to a temporary file in the same folder. If the block ends without an exception, the
    temporary file is flushed and renamed to `path`. A crash or a full disk therefore never leaves a partial file.

    Args:
        path: The path of the file.

    Yields:
        The temporary file, open for writing and reading.

    Raises:
        OSError: The file cannot be written. An existing file at `path` is unchanged.
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


@contextlib.contextmanager
def write_failure_as_bad_input(key: str, path: pathlib.Path) -> Iterator[None]:
    """Converts an OSError within a `with` block to BadInput, which names the file or folder that cannot be written."""
    try:
        yield
    except OSError as error:
        raise BadInput(key, f'cannot be written ({error.strerror})', value=path) from None


def remove_leftovers(folder: pathlib.Path) -> None:
    """Removes temporary files that killed processes left in a folder. No other process may be using the folder."""
    for temporary in folder.glob('.*.tmp'):
        temporary.unlink()


def expand(key: str, path: str | os.PathLike[str]) -> pathlib.Path:
    """Expands a leading `~` in a path. Shells do not expand `~` after an equals sign.

    Args:
        key: The config key or flag that specifies the path, for error messages.
        path: The path given by the user.

    Raises:
        BadInput: The home folder is unknown, or the path contains a NUL or is too long.
    """
    try:
        expanded = pathlib.Path(path).expanduser()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            expanded.lstat()
    except (RuntimeError, ValueError) as error:
        raise BadInput(key, str(error), value=path) from None
    except OSError as error:  # other errors, such as missing permissions, are raised when the path is opened
        require(error.errno != errno.ENAMETOOLONG, key, str(path), 'is too long for a path')
    return expanded


def cache_folder() -> pathlib.Path:
    """Returns the cache folder: $NPLM_JAX_CACHE if set, else $XDG_CACHE_HOME/nplm_jax, by default ~/.cache/nplm_jax."""
    if folder := os.environ.get('NPLM_JAX_CACHE'):
        return pathlib.Path(folder)
    return pathlib.Path(os.environ.get('XDG_CACHE_HOME') or '~/.cache').expanduser() / 'nplm_jax'
