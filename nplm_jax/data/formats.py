"""The formats of text files, read in bounded memory: compressed text, lines of JSON, rows of tables."""

import contextlib
import gzip
import io
import itertools
import json
import pathlib
import re
import zlib
from collections.abc import Collection, Iterator
from typing import Any, BinaryIO

from nplm_jax.utils.errors import BadInput, first_line

COMPRESSIONS = ('.gz', '.zst')
TABLES = ('.parquet', '.arrow')

_MAX_LINE_BYTES = 2**28  # of .jsonl
_ROWS = 256  # of .parquet, that are read at a time
_INSTALL = 'pip install "nplm-jax[corpora]"'


@contextlib.contextmanager
def decompress(name: str, opened: io.BufferedReader, compression: str) -> Iterator[BinaryIO]:
    """Opens the content of a file that may be compressed.

    Args:
        name: The beginning of error messages.
        opened: The file.
        compression: One of COMPRESSIONS, which is undone, or ''.

    Yields:
        The content, for reading.

    Raises:
        BadInput: The content, read in the block, is damaged or ends in the middle; or the package that decompresses is
            missing.
    """
    content: Any = opened
    errors: tuple[type[Exception], ...] = (gzip.BadGzipFile, zlib.error)
    try:
        if compression == '.zst':
            import backports.zstd as zstd  # noqa: PLC0415 (an optional package)

            content, errors = io.BufferedReader(zstd.ZstdFile(opened)), (zstd.ZstdError,)
        elif compression == '.gz':
            content = io.BufferedReader(gzip.GzipFile(fileobj=opened))
            if not opened.peek(1):
                raise EOFError  # GzipFile reads an empty file as an empty text
        yield content
    except ImportError:
        raise BadInput(f'{name}: needs backports.zstd: {_INSTALL}') from None
    except EOFError:
        raise BadInput(f'{name}: truncated') from None
    except errors as error:
        raise BadInput(f'{name}: damaged or not {compression} ({error})') from None


def read_json_lines(file: pathlib.Path, content: BinaryIO, column: str) -> Iterator[str]:
    """Yields the text in each line of JSON; a null is an empty text, a blank line is left out.

    Args:
        file: The file, for error messages.
        content: Its content.
        column: The key of the text in the object that a line is.

    Raises:
        BadInput: A line is not such an object, or its text not a string; the message names file and line.
    """
    for number in itertools.count(1):
        if not (line := content.readline(_MAX_LINE_BYTES + 1)):
            return
        where = f'{file}:{number}'
        if len(line) > _MAX_LINE_BYTES:
            raise BadInput(f'{where}: a line of more than {_MAX_LINE_BYTES:,} bytes; expected one JSON object per line')
        try:
            text = line.decode('utf-8-sig' if number == 1 else 'utf-8')
            row = json.loads(text) if text.strip() else {column: None}
        except (ValueError, RecursionError) as error:  # Python limits the digits of an integer and the depth of nesting
            raise BadInput(f'{where}: not JSON in UTF-8 ({getattr(error, "msg", error)})') from None
        if not isinstance(row, dict):
            raise BadInput(f'{where}: not a JSON object')
        _check_column(where, column, row)
        if fault := find_fault(row[column]):
            raise BadInput(f'{where}, column {column!r}: {fault}')
        yield row[column] or ''


def read_table(name: str, content: BinaryIO, kind: str, column: str) -> Iterator[str]:
    """Yields the text in each row of a table; a null is an empty text.

    Args:
        name: The beginning of error messages.
        content: The content of the file.
        kind: One of TABLES: .parquet, or .arrow for the stream format of Arrow's IPC.
        column: The column of the text.

    Raises:
        BadInput: The file is damaged, or has no such column of strings; or pyarrow is missing.
    """
    pyarrow = import_pyarrow(name)
    row = 0  # the last one that was read
    try:
        if kind == '.parquet':
            table = pyarrow.parquet.ParquetFile(content, buffer_size=2**18, pre_buffer=False)
            columns, batches = table.schema_arrow.names, table.iter_batches(_ROWS, columns=[column], use_threads=False)
        else:
            batches = pyarrow.ipc.open_stream(content)
            columns = batches.schema.names
        _check_column(name, column, columns)
        for text in itertools.chain.from_iterable(batch.column(column).to_pylist() for batch in batches):
            row += 1
            if fault := find_fault(text):
                raise BadInput(f'{name}, row {row:,}, column {column!r}: {fault}')
            yield text or ''
    except UnicodeDecodeError:
        raise BadInput(f'{name}, row {row + 1:,} or later, column {column!r}: not UTF-8 text') from None
    except (pyarrow.ArrowException, OSError, KeyError) as error:  # KeyError: two columns of this name
        raise BadInput(f'{name}: damaged or not {kind} ({first_line(error)})') from None


def import_pyarrow(name: str) -> Any:
    """Returns the package pyarrow with its module `parquet`. Raises: BadInput, which begins with `name`, without it."""
    try:
        import pyarrow.parquet  # noqa: PLC0415 (an optional package)
    except ImportError:
        raise BadInput(f'{name}: needs pyarrow: {_INSTALL}') from None
    return pyarrow


def _check_column(where: str, column: str, columns: Collection[str]) -> None:
    if column not in columns:
        raise BadInput(f'{where}: no column {column!r}; it has {", ".join(map(repr, columns)) or "none"}')


def find_fault(text: Any) -> str:
    """Returns what is wrong with a cell, which must be None or valid Unicode without NUL; '' for nothing."""
    if text is None:
        return ''
    if not isinstance(text, str):
        return f'holds {type(text).__name__}, not text'
    if '\0' in text:
        return f'binary, not text (NUL at character {text.index(chr(0)):,})'
    return 'not valid Unicode' if not text.isascii() and re.search('[\ud800-\udfff]', text) else ''
