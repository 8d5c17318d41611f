"""Functions that read untrusted files. They reject pipes, devices, binary files and malformed JSON."""

import codecs
import contextlib
import hashlib
import io
import itertools
import json
import math
import os
import pathlib
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from nplm_jax.utils.errors import BadInput

_MAX_BYTES = 2**32
_MAX_BYTES_JSON = 2**26
_MAX_JSON_DEPTH = 50

# The schema of a JSON value is a tuple of allowed types. The schema of an object maps each key to the schema of its
# value; ANY_KEY matches all other keys. The schema of a list is a list of one schema, which all values must match.
Schema: TypeAlias = tuple[type, ...] | list['Schema'] | Mapping[str, 'Schema']
ANY_KEY = '*'


def read_bytes(name: str, file: pathlib.Path, max_bytes: int = _MAX_BYTES) -> bytes:
    """Reads a regular file. Rejects FIFOs, which would block, and devices, whose data may be endless.

    Args:
        name: The name of the input, used as the key of error messages.
        file: The path of the file.
        max_bytes: The maximum size of the file, in bytes.

    Raises:
        BadInput: The file does not exist, is not a regular file, cannot be read, or is too large.
    """
    with open_regular(name, file) as opened:
        if (size := os.fstat(opened.fileno()).st_size) > max_bytes:
            raise BadInput(name, f'is too large ({size:,} bytes; the maximum is {max_bytes:,})')
        return opened.read()


@contextlib.contextmanager
def open_regular(name: str, file: pathlib.Path) -> Iterator[io.BufferedReader]:
    """Opens a regular file. Rejects FIFOs, which would block, and devices, whose data may be endless.

    Args:
        name: The name of the input, used as the key of error messages.
        file: The path of the file.

    Yields:
        The file, open for reading.

    Raises:
        BadInput: The file does not exist, is not a regular file, or cannot be opened; or reading fails within the
            block.
    """
    try:
        with open(file, 'rb', opener=_open_without_blocking) as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise BadInput(name, 'must be a regular file, not a pipe or a device')
            yield opened
    except BadInput:
        raise
    except (OSError, ValueError) as error:  # ValueError: the path contains a NUL
        raise BadInput(name, f'cannot be read ({getattr(error, "strerror", None) or error})') from None


def sha256(name: str, file: pathlib.Path) -> str:
    """Returns the SHA-256 digest of a regular file in hexadecimal form.

    Args:
        name: The name of the input, used as the key of error messages.
        file: The file, of any size.

    Raises:
        BadInput: The file does not exist, is not a regular file, or cannot be read.
    """
    with open_regular(name, file) as opened:
        return hashlib.file_digest(opened, 'sha256').hexdigest()


def read_text(key: str, file: pathlib.Path) -> str:
    """Reads a UTF-8 text file.

    Args:
        key: The config key that specifies the file, for error messages.
        file: The path of the file.

    Raises:
        BadInput: The file cannot be read, or it is not valid UTF-8 text.
    """
    name = f'{key}={str(file)!r}'
    return decode(name, read_bytes(name, file))


def decode(name: str, data: bytes) -> str:
    """Decodes UTF-8 text.

    Args:
        name: The name of the input, used as the key of error messages.
        data: The bytes, with or without a byte-order mark.

    Raises:
        BadInput: The bytes are not UTF-8 or contain a NUL.
    """
    return ''.join(decode_blocks(name, [data]))


def decode_blocks(name: str, blocks: Iterable[bytes]) -> Iterator[str]:
    """Decodes blocks of UTF-8 text and drops the byte-order mark. A character may span two blocks.

    Args:
        name: The name of the input, used as the key of error messages.
        blocks: The blocks. An empty block marks the end of the text.

    Raises:
        BadInput: The bytes are not UTF-8 or contain a NUL.
    """
    decoder = codecs.getincrementaldecoder('utf-8-sig')()
    num_bytes = num_characters = 0
    for block in itertools.chain(blocks, [b'']):
        num_bytes += len(block)
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            position = num_bytes - len(error.object) + error.start  # error.object ends with the current block
            raise BadInput(name, _not_utf8(f'byte {position:,}')) from None
        if '\0' in text:
            position = num_characters + text.index('\0')
            raise BadInput(name, f'is binary, not text (character {position:,} is NUL)')
        num_characters += len(text)
        yield text


def read_lines(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Yields each line of a UTF-8 file, including its line ending, preceded by its line number, starting at 1.

    Raises:
        BadInput: The file cannot be read, or it is not text. The key names the file and the line.
    """
    return decode_lines(path, read_bytes(str(path), path))


def decode_lines(path: pathlib.Path, data: bytes, first: int = 1) -> Iterator[tuple[int, str]]:
    """Yields each line of a UTF-8 text, preceded by its line number; see `read_lines`.

    Args:
        path: The path of the file, for error messages.
        data: The encoded text.
        first: The number of the first line of the text.
    """
    data = data.removeprefix(b'\xef\xbb\xbf') if first == 1 else data
    for number, line in enumerate(io.BytesIO(data), start=first):
        if b'\0' in line:
            raise BadInput(f'{path}:{number}', f'is binary, not text (byte {line.index(0):,} of the line is NUL)')
        try:
            yield number, line.decode('utf-8')
        except UnicodeDecodeError as error:
            raise BadInput(f'{path}:{number}', _not_utf8(f'byte {error.start:,} of the line')) from None


def read_numbers(path: pathlib.Path, meaning: str) -> Iterator[tuple[int, str, int]]:
    """Yields the line number, word and number of each line in a file whose lines have the form `word<TAB>number`.

    Args:
        path: The path of the file.
        meaning: What the numbers mean, for error messages.

    Raises:
        BadInput: A line is malformed, the last line is unterminated, or a word occurs more than once. The key names the
            file and the line.
    """
    words = set()
    for number, line in read_lines(path):
        match = re.fullmatch(r'([^\t\n]+)\t([0-9]{1,18})\n', line)
        if not match:
            raise BadInput(f'{path}:{number}', f'must contain a word, a tab and the {meaning}')
        if match[1] in words:
            raise BadInput(f'{path}:{number}', f'{match[1]!r} occurs more than once')
        words.add(match[1])
        yield number, match[1], int(match[2])


def read_json(path: pathlib.Path) -> dict[str, Any]:
    """Reads the JSON object in a file.

    Raises:
        BadInput: The file cannot be read, or `parse_json` rejects its content.
    """
    text = ''.join(line for _, line in decode_lines(path, read_bytes(str(path), path, _MAX_BYTES_JSON)))
    return parse_json(path, text)


def parse_json(path: pathlib.Path, text: str, line: int = 0) -> dict[str, Any]:
    """Parses a JSON object that was read from a file or from a line of a file.

    Args:
        path: The file, for error messages.
        text: The JSON text.
        line: The line number, or 0 if the text is the whole file.

    Raises:
        BadInput: The text is not valid JSON, is not an object, is nested too deeply, or contains NaN, an out-of-range
            number or an unpaired surrogate. The key names the file and the line.
    """
    try:
        value = json.loads(text)
        is_plain = isinstance(value, dict) and _is_plain(value, _MAX_JSON_DEPTH)
    except json.JSONDecodeError as error:
        raise BadInput(f'{path}:{line or error.lineno}', f'is not valid JSON ({error.msg})') from None
    except (ValueError, RecursionError):  # Python limits the length of integers and the depth of nesting
        is_plain = False
    if not is_plain:
        where = f'{path}:{line}' if line else path
        form = f'a JSON object with finite 64-bit numbers, valid Unicode and at most {_MAX_JSON_DEPTH} nested levels'
        raise BadInput(where, f'must be {form}')
    return value


def matches_schema(value: Any, schema: Schema) -> bool:
    """Returns whether a parsed JSON value matches a schema.

    If the schema is a tuple of types, the value must have one of these types. If the schema is a mapping, the value
    must be an object with all keys of the schema, and the values must match. Other keys are allowed. If the schema is a
    list, the value must be a list.
    """
    if isinstance(schema, tuple):
        return type(value) in schema
    if isinstance(schema, list):
        return isinstance(value, list) and all(matches_schema(inner, schema[0]) for inner in value)
    if not isinstance(value, Mapping) or not schema.keys() - {ANY_KEY} <= value.keys():
        return False
    of_keys = ((inner, schema.get(key, schema.get(ANY_KEY))) for key, inner in value.items())
    return all(expected is None or matches_schema(inner, expected) for inner, expected in of_keys)


def _not_utf8(position: str) -> str:
    """Returns the error message for text that is not valid UTF-8, with the position of the first invalid byte."""
    return f'is not valid UTF-8 ({position}); to convert Latin-1, run: iconv -f latin1 -t utf-8 OLD > NEW'


def is_unicode(text: str) -> bool:
    """Returns whether a string has no unpaired surrogates, which Python uses for undecodable file names."""
    return text.isascii() or not re.search('[\ud800-\udfff]', text)


def _is_plain(value: Any, depth: int) -> bool:
    """Returns whether a parsed value has only finite 64-bit numbers, valid Unicode and at most `depth` levels."""
    if isinstance(value, str):
        return is_unicode(value)
    if isinstance(value, (dict, list)):
        inner = (*value, *value.values()) if isinstance(value, dict) else value
        return depth > 0 and all(_is_plain(v, depth - 1) for v in inner)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or -(2**63) <= value < 2**63


def _open_without_blocking(path: str, flags: int) -> int:
    """Opens a file without waiting for the writer of a FIFO and without acquiring a controlling terminal."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def finite_numbers(texts: Iterable[str], key: str, problem: str, value: Any = ...) -> list[float]:
    """Parses finite numbers. Raises BadInput(key, problem, value) if a text is not a finite number."""
    try:
        numbers = list(map(float, texts))
    except ValueError:
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers)):
        raise BadInput(key, problem, value=value)
    return numbers
