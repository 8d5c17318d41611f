"""The formats of text files, read in bounded memory: blocks of compressed text, lines of JSON, rows of tables."""

import codecs
import functools
import gzip
import itertools
import json
import pathlib
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from nplm_jax.utils.errors import BadInput, first_line

COMPRESSIONS = ('.gz', '.zst')
TABLES = ('.parquet', '.arrow')

_BLOCK_BYTES = 2**18  # that are read at a time
_ZSTD_BYTES = 2**13  # compressed bytes that are decompressed at a time; they may hold much more text
_MAX_LINE_BYTES = 2**28  # of .jsonl
_ROWS = 256  # of a table, that are read at a time
_BYTE_ORDER_MARK = b'\xef\xbb\xbf'
_INSTALL = 'pip install "nplm-jax[corpora]"'


class _DamagedError(Exception):
    """A compressed file is damaged."""


def read_blocks(name: str, opened: BinaryIO, compression: str) -> Iterator[bytes]:
    """Reads a file in blocks.

    Args:
        name: The beginning of error messages.
        opened: The file.
        compression: One of COMPRESSIONS, which is undone, or ''.

    Raises:
        BadInput: The file is damaged, it ends in the middle, or the package that decompresses is missing.
        OSError: The file is unreadable.
    """
    decompress = {'': _read, '.gz': _decompress_gzip, '.zst': _decompress_zstd}[compression]
    try:
        yield from decompress(opened)
    except EOFError:
        raise BadInput(f'{name}: truncated') from None
    except ImportError:
        raise BadInput(f'{name}: needs zstandard: {_INSTALL}') from None
    except (gzip.BadGzipFile, zlib.error, _DamagedError) as error:
        raise BadInput(f'{name}: damaged or not {compression} ({error})') from None


def _read(opened: BinaryIO) -> Iterator[bytes]:
    return iter(functools.partial(opened.read, _BLOCK_BYTES), b'')


def _decompress_gzip(opened: BinaryIO) -> Iterator[bytes]:
    """Raises: EOFError where the file ends in the middle; BadGzipFile or zlib.error where it is damaged."""
    with gzip.GzipFile(fileobj=opened) as file:
        while block := file.read(_BLOCK_BYTES):
            yield block
    if not opened.tell():
        raise EOFError


def _decompress_zstd(opened: BinaryIO) -> Iterator[bytes]:
    """Raises: ImportError; EOFError where the file ends in the middle; _DamagedError."""
    import zstandard  # noqa: PLC0415 (an optional package)

    # zstandard's stream_reader would end without an error where the file ends in the middle.
    decompressor = zstandard.ZstdDecompressor()
    frame = decompressor.decompressobj()
    is_inside = True
    try:
        while block := opened.read(_ZSTD_BYTES):
            while block:
                if not is_inside:
                    frame = decompressor.decompressobj()
                yield frame.decompress(block)
                is_inside = not frame.eof
                block = frame.unused_data
    except zstandard.ZstdError as error:
        raise _DamagedError(error) from None
    if is_inside:
        raise EOFError


def decode_blocks(name: str, blocks: Iterable[bytes]) -> Iterator[str]:
    """Decodes blocks of UTF-8, whose borders may split characters; leaves out the byte-order mark.

    Args:
        name: The beginning of error messages.
        blocks: The blocks.

    Raises:
        BadInput: The bytes are not UTF-8 or hold a NUL.
    """
    data, num_bytes, num_characters = b'', 0, 0  # the two numbers are of what is decoded
    for block in itertools.chain(blocks, [None]):
        data += block or b''
        if not num_bytes and len(data) < len(_BYTE_ORDER_MARK) and block is not None:
            continue
        if not num_bytes and data.startswith(_BYTE_ORDER_MARK):
            data, num_bytes = data[len(_BYTE_ORDER_MARK) :], len(_BYTE_ORDER_MARK)
        try:
            text, consumed = codecs.utf_8_decode(data, 'strict', block is None)
        except UnicodeDecodeError as error:
            raise BadInput(f'{name}: not UTF-8 text (byte {num_bytes + error.start:,}); convert it first') from None
        if '\0' in text:
            position = num_characters + text.index('\0')
            raise BadInput(f'{name}: binary, not text (NUL at character {position:,})')
        data, num_bytes, num_characters = data[consumed:], num_bytes + consumed, num_characters + len(text)
        yield text


def read_json_lines(file: pathlib.Path, blocks: Iterable[bytes], column: str) -> Iterator[str]:
    """Yields the text in each line of JSON; a null is an empty text, a blank line is left out.

    Args:
        file: The file, for error messages.
        blocks: Its content.
        column: The key of the text in the object that a line is.

    Raises:
        BadInput: A line is not such an object, or its text not a string; the message names file and line.
    """
    for number, line in enumerate(_split_lines(file, blocks), start=1):
        try:
            decoded = line.decode('utf-8-sig' if number == 1 else 'utf-8')
            row = json.loads(decoded) if decoded.strip() else {column: None}
        except UnicodeDecodeError as error:
            raise BadInput(f'{file}:{number}: not UTF-8 text (byte {error.start:,} of the line)') from None
        except json.JSONDecodeError as error:
            raise BadInput(f'{file}:{number}: not JSON ({error.msg})') from None
        except (ValueError, RecursionError) as error:  # Python limits the digits of an integer and the depth of nesting
            raise BadInput(f'{file}:{number}: JSON that cannot be read ({error})') from None
        if not isinstance(row, dict):
            raise BadInput(f'{file}:{number}: not a JSON object')
        if column not in row:
            raise BadInput(f'{file}:{number}: no column {column!r}; it has {", ".join(map(repr, row)) or "none"}')
        yield _check_text(f'{file}:{number}', column, row[column])


def _split_lines(file: pathlib.Path, blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the lines of a file without their ends."""
    parts: list[bytes] = []
    num_bytes, number = 0, 1
    for block in blocks:
        first, *others = block.split(b'\n')
        parts.append(first)
        num_bytes += len(first)
        if num_bytes > _MAX_LINE_BYTES:
            raise BadInput(
                f'{file}:{number}: a line of more than {_MAX_LINE_BYTES:,} bytes; expected one JSON object per line'
            )
        for line in others:
            yield b''.join(parts)
            parts, num_bytes, number = [line], len(line), number + 1
    yield b''.join(parts)


def _check_text(where: str, column: str, text: Any) -> str:
    """Returns the text of a row, '' for None. Raises: BadInput if it is no string of valid Unicode without NUL."""
    if text is None:
        return ''
    if not isinstance(text, str):
        raise BadInput(f'{where}: column {column!r} holds {type(text).__name__}, not text')
    if '\0' in text:
        raise BadInput(f'{where}: binary, not text (NUL at character {text.index(chr(0)):,})')
    try:
        if not text.isascii():
            text.encode('utf-8')
    except UnicodeEncodeError as error:
        raise BadInput(f'{where}: not valid Unicode (character {error.start:,})') from None
    return text


def read_table(name: str, opened: BinaryIO, kind: str, column: str) -> Iterator[str]:
    """Yields the text in each row of a table; a null is an empty text.

    Args:
        name: The beginning of error messages.
        opened: The file.
        kind: One of TABLES: .parquet, or .arrow for the stream format of Arrow's IPC.
        column: The column of the text.

    Raises:
        BadInput: The file is damaged, or has no such column of strings; or pyarrow is missing.
    """
    pyarrow = import_pyarrow(name)
    first, where = 1, name
    try:
        for batch in {'.parquet': _parquet_batches, '.arrow': _arrow_batches}[kind](name, opened, column):
            for start in range(0, len(batch), _ROWS):
                rows = batch.slice(start, _ROWS)
                where = f'{name}, rows {first + start:,} to {first + start + len(rows) - 1:,}'
                for text in rows.to_pylist():
                    yield _check_text(where, column, text)
            first += len(batch)
    except UnicodeDecodeError:
        raise BadInput(f'{where}: not UTF-8 text') from None
    except (pyarrow.ArrowException, OSError) as error:
        raise BadInput(f'{name}: damaged or not {kind} ({first_line(error)})') from None


def import_pyarrow(name: str) -> Any:
    """Returns the package pyarrow with its module `parquet`. Raises: BadInput, which begins with `name`, without it."""
    try:
        import pyarrow.parquet  # noqa: PLC0415 (an optional package)
    except ImportError:
        raise BadInput(f'{name}: needs pyarrow: {_INSTALL}') from None
    return pyarrow


def _parquet_batches(name: str, opened: BinaryIO, column: str) -> Iterator[Any]:
    """Yields the column of a Parquet file in batches of rows."""
    import pyarrow.parquet  # noqa: PLC0415

    with pyarrow.parquet.ParquetFile(opened, buffer_size=_BLOCK_BYTES, pre_buffer=False) as table:
        _check_column(name, column, table.schema_arrow)
        for batch in table.iter_batches(_ROWS, columns=[column], use_threads=False):
            yield batch.column(0)


def _arrow_batches(name: str, opened: BinaryIO, column: str) -> Iterator[Any]:
    """Yields the column of a stream of record batches."""
    import pyarrow.ipc  # noqa: PLC0415

    with pyarrow.ipc.open_stream(opened) as stream:
        _check_column(name, column, stream.schema)
        for batch in stream:
            yield batch.column(column)


def _check_column(name: str, column: str, schema: Any) -> None:
    """Raises BadInput unless a table has the column, and strings in it."""
    import pyarrow  # noqa: PLC0415

    if column not in schema.names:
        raise BadInput(f'{name}: no column {column!r}; it has {", ".join(map(repr, schema.names)) or "none"}')
    kind = schema.field(column).type
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    tests = (pyarrow.types.is_string, pyarrow.types.is_large_string, pyarrow.types.is_string_view)
    if not any(is_text(kind) for is_text in tests):
        raise BadInput(f'{name}: column {column!r} holds {kind}, not text')
