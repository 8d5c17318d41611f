"""Writing files so that a kill or a full disk never leaves half of one; reading a user's text."""

from __future__ import annotations

import contextlib
import os
import pathlib

from nplm_jax.errors import BadInput


def write_atomically(path: pathlib.Path, data: str | bytes) -> None:
    """Writes under a temporary name beside `path`, flushes to the disk and renames; text as UTF-8.

    On return the name is on the disk too: what is written later is never there without it.
    Raises: OSError when the disk does; an earlier file at `path` is then as it was.
    """
    temporary = path.with_name(f'.{path.name}.{os.getpid()}.tmp')
    try:
        with temporary.open('wb') as file:
            file.write(data.encode('utf-8') if isinstance(data, str) else data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _flush_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _flush_folder(folder: pathlib.Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot
            os.fsync(number)
    finally:
        os.close(number)


def remove_leftovers(folder: pathlib.Path) -> None:
    """Removes what killed processes were writing in `folder`, which no other process may be using."""
    for temporary in folder.glob('.*.tmp'):
        temporary.unlink()


def expand(key: str, path: str | os.PathLike[str]) -> pathlib.Path:
    """The path with a leading ~ resolved, which a shell does not do after an equals sign. Raises: BadInput."""
    try:
        return pathlib.Path(path).expanduser()
    except RuntimeError as error:
        raise BadInput(f'{key}={str(path)!r}: {error}') from None


def read_text(key: str, file: pathlib.Path) -> str:
    """The UTF-8 text of a file that the config's `key` led to. Raises: BadInput when it is none."""
    try:
        text = file.read_bytes().decode('utf-8-sig')
    except UnicodeDecodeError as error:
        raise BadInput(f'{key}={str(file)!r}: not UTF-8 text (byte {error.start:,}); convert it first') from None
    except OSError as error:
        raise BadInput(f'{key}={str(file)!r}: cannot be read ({error.strerror})') from None
    if '\0' in text:
        raise BadInput(f'{key}={str(file)!r}: binary, not text (NUL at character {text.index(chr(0)):,})')
    return text
