"""Writing files so that a kill or a full disk never leaves half of one; reading those that may hold anything."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import pathlib
import re
import stat
from collections.abc import Iterator
from typing import Any

from nplm_jax.utils.errors import BadInput

_MOST_BYTES = 2**32  # of a file of text
_MOST_BYTES_JSON = 2**26
_DEEPEST = 50  # levels of JSON


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


def read_bytes(name: str, file: pathlib.Path, most: int = _MOST_BYTES) -> bytes:
    """The bytes of a regular file: a FIFO would wait for ever, a device never end. name: how a complaint begins.

    Raises: BadInput when it is none, cannot be read or has more than `most` bytes.
    """
    try:
        with open(file, 'rb', opener=_open_without_waiting) as opened:
            facts = os.fstat(opened.fileno())
            fits = facts.st_size <= most
            data = opened.read(facts.st_size + 1) if stat.S_ISREG(facts.st_mode) and fits else b''
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        raise BadInput(f'{name}: cannot be read ({getattr(error, "strerror", None) or error})') from None
    if not stat.S_ISREG(facts.st_mode):
        raise BadInput(f'{name}: cannot be read (neither a file nor a folder)')
    if not fits:
        raise BadInput(f'{name}: too large ({facts.st_size:,} bytes; {most:,} at most)')
    if len(data) > facts.st_size:
        raise BadInput(f'{name}: grew while it was read')
    return data


def read_text(key: str, file: pathlib.Path) -> str:
    """The UTF-8 text of a file that the config's `key` led to. Raises: BadInput when it is none."""
    name = f'{key}={str(file)!r}'
    return decode(name, read_bytes(name, file))


def decode(name: str, data: bytes) -> str:
    """A user's text. Raises: BadInput for bytes that are none; `name` opens the complaint."""
    try:
        text = data.decode('utf-8-sig')
    except UnicodeDecodeError as error:
        raise BadInput(f'{name}: not UTF-8 text (byte {error.start:,}); convert it first') from None
    if '\0' in text:
        raise BadInput(f'{name}: binary, not text (NUL at character {text.index(chr(0)):,})')
    return text


def read_lines(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file, each with its number and its end. Raises: BadInput naming file and line."""
    return lines(path, read_bytes(str(path), path))


def lines(path: pathlib.Path, data: bytes) -> Iterator[tuple[int, str]]:
    """As `read_lines`, of bytes that were read from `path`."""
    for number, line in enumerate(io.BytesIO(data.removeprefix(b'\xef\xbb\xbf')), start=1):
        if b'\0' in line:
            raise BadInput(f'{path}:{number}: binary, not text (byte {line.index(0):,} of the line is NUL)')
        try:
            yield number, line.decode('utf-8')
        except UnicodeDecodeError as error:
            raise BadInput(f'{path}:{number}: not UTF-8 text (byte {error.start:,} of the line)') from None


def read_numbers(path: pathlib.Path, what: str) -> Iterator[tuple[int, str, int]]:
    """Lines `word<TAB>number`, no word twice, each with its own number first. what: the number is, for a complaint.

    Raises: BadInput naming file and line where it is not of that form, a last line without end among them.
    """
    seen = set()
    for number, line in read_lines(path):
        found = re.fullmatch(r'([^\t\n]+)\t([0-9]{1,18})\n', line)
        if not found:
            raise BadInput(f'{path}:{number}: expected word, tab, {what}')
        if found[1] in seen:
            raise BadInput(f'{path}:{number}: {found[1]!r} stands twice')
        seen.add(found[1])
        yield number, found[1], int(found[2])


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """The object that a JSON file of this program holds. Raises: BadInput, as `parse_json`."""
    text = ''.join(line for _, line in lines(path, read_bytes(str(path), path, _MOST_BYTES_JSON)))
    return parse_json(path, text)


def parse_json(path: pathlib.Path, text: str, line: int = 0) -> dict[str, Any]:
    """An object that is all of `path`, or one line of it.

    Raises: BadInput naming file and line for what is no JSON, no object, too deep, or has what no file of this
    program has: NaN, a number out of range, half a character.
    """
    try:
        found = json.loads(text)
        plain = isinstance(found, dict) and _is_plain(found, _DEEPEST)
    except json.JSONDecodeError as error:
        raise BadInput(f'{path}:{line or error.lineno}: not JSON ({error.msg})') from None
    except (ValueError, RecursionError):  # more digits, or more levels, than Python reads
        plain = False
    if not plain:
        where = f'{path}:{line}' if line else path
        raise BadInput(f'{where}: not a JSON object of finite numbers and whole characters, {_DEEPEST} levels at most')
    return found


def _is_plain(value: Any, depth: int) -> bool:
    if isinstance(value, str):
        return not re.search('[\ud800-\udfff]', value)
    if isinstance(value, (dict, list)):
        inner = (*value, *value.values()) if isinstance(value, dict) else value
        return depth > 0 and all(_is_plain(v, depth - 1) for v in inner)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or -(2**63) <= value < 2**63


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
