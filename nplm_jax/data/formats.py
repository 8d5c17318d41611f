"""Reads compressed text, JSON Lines and tables in bounded memory."""

import codecs
import contextlib
import gzip
import io
import itertools
import json
import pathlib
import zlib
from collections.abc import Collection, Iterator
from typing import IO, Any, BinaryIO

from nplm_jax.utils.errors import BadInput, first_line
from nplm_jax.utils.untrusted import is_unicode

COMPRESSIONS = ('.gz', '.zst')  # suffixes of compressed texts
TABLES = ('.parquet', '.arrow')

_MAGIC = {b'\x1f\x8b': '.gz', b'BZh': '.bz2', b'\xfd7zXZ\0': '.xz', b'\x28\xb5\x2f\xfd': '.zst'}
COMPRESSED = tuple(_MAGIC.values())  # usual file suffixes
_MAX_LINE_BYTES = 2**28  # maximum size of a line of .jsonl
_ROWS = 256  # rows of .parquet per read
_INSTALL = 'install it with: pip install "nplm-jax[corpora]"'


def stem(path: pathlib.Path) -> str:
    """Returns the name of a file without its suffixes, such as `news` for news.arpa.gz."""
    return (path.with_suffix('') if path.suffix in COMPRESSED else path).stem


def find_compression(opened: io.BufferedReader) -> str:
    """Detects the compression of a file from its first bytes without consuming them: .gz, .bz2, .xz, .zst or ''."""
    start = opened.peek(max(map(len, _MAGIC)))
    return next((compression for magic, compression in _MAGIC.items() if start.startswith(magic)), '')


@contextlib.contextmanager
def decompress(name: str, opened: io.BufferedReader, compression: str) -> Iterator[io.BufferedReader]:
    """Opens the content of a possibly compressed file.

    Args:
        name: The name of the input, used as the key of error messages.
        opened: The open file, in binary mode.
        compression: The compression, as returned by `find_compression`.

    Yields:
        The decompressed content, for reading.

    Raises:
        BadInput: The decompression package is missing, or the content is damaged or truncated. Damage may be detected
            only when the content is read.
    """
    content: Any = opened
    errors: tuple[type[Exception], ...] = (gzip.BadGzipFile, zlib.error)
    try:
        if compression == '.zst':
            zstd = _import_zstd(name)
            content, errors = io.BufferedReader(zstd.ZstdFile(opened)), (zstd.ZstdError,)
        elif compression == '.gz':
            content = io.BufferedReader(gzip.GzipFile(fileobj=opened))
            if not opened.peek(1):
                raise EOFError  # GzipFile reads an empty file as an empty text
        elif compression == '.bz2':
            import bz2  # noqa: PLC0415 (Python can be built without it)

            content = io.BufferedReader(bz2.BZ2File(opened))  # BZ2File raises OSError for damaged content
        elif compression == '.xz':
            import lzma  # noqa: PLC0415 (Python can be built without it)

            content, errors = io.BufferedReader(lzma.LZMAFile(opened)), (lzma.LZMAError,)
        yield content
    except EOFError:
        raise BadInput(name, 'the file is truncated') from None
    except errors as error:
        raise BadInput(name, f'the file is damaged or is not a {compression} file ({error})') from None


@contextlib.contextmanager
def compress(name: str, opened: IO[bytes], compression: str) -> Iterator[IO[bytes]]:
    """Opens a possibly compressed file for writing.

    Args:
        name: The name of the input, used as the key of error messages.
        opened: The open file, in binary mode.
        compression: One of COMPRESSIONS, or ''.

    Yields:
        A file object to which the uncompressed content is written.

    Raises:
        BadInput: The compression package is missing.
    """
    content: Any = contextlib.nullcontext(opened)
    if compression == '.zst':
        content = _import_zstd(name).ZstdFile(opened, 'wb')
    elif compression == '.gz':
        content = gzip.GzipFile('', 'wb', fileobj=opened, mtime=0)
    with content as writable:
        yield writable


def split_suffix(file: pathlib.Path) -> tuple[str, str]:
    """Returns the lower-case suffixes of a file's format and compression, or '' if absent."""
    suffixes = [suffix.lower() for suffix in file.suffixes[-2:]]
    compression = suffixes.pop() if suffixes and suffixes[-1] in COMPRESSIONS else ''
    return suffixes[-1] if suffixes else '', compression


def read_json_rows(
    file: pathlib.Path, content: BinaryIO, column: str, new_column: str = ''
) -> Iterator[tuple[bytes, str]]:
    """Yields each line of a .jsonl file, as bytes without the line ending, with its text.

    The text of a null or a blank line is an empty string.

    Args:
        file: The file, for error messages.
        content: The content of the file.
        column: The key of the text in each object.
        new_column: A key that no object may have, or '' to allow all keys.

    Raises:
        BadInput: A line is not an object with this key, or its text is not a string. The error names the file and line.
    """
    for number in itertools.count(1):
        if not (line := content.readline(_MAX_LINE_BYTES + 1)):
            return
        where = f'{file}:{number}'
        if len(line) > _MAX_LINE_BYTES:
            raise BadInput(where, f'must be a JSON object of at most {_MAX_LINE_BYTES:,} bytes on a single line')
        line = line.removeprefix(codecs.BOM_UTF8 if number == 1 else b'').strip()
        try:
            row = json.loads(line.decode()) if line else {column: None}
        except (ValueError, RecursionError) as error:  # Python limits the digits of an integer and the depth of nesting
            raise BadInput(where, f'must be JSON encoded in UTF-8 ({getattr(error, "msg", error)})') from None
        if not isinstance(row, dict):
            raise BadInput(where, 'must be a JSON object')
        _check_columns(where, row, column, new_column)
        if fault := find_fault(row[column]):
            raise BadInput(f'{where}, column {column!r}', fault)
        yield line, row[column] or ''


def read_batches(
    name: str, content: BinaryIO, kind: str, column: str, all_columns: bool = False, new_column: str = ''
) -> Iterator[tuple[Any, list[str]]]:
    """Yields the rows of a table as pyarrow record batches, each with a list of its texts. Nulls become empty strings.

    Args:
        name: The name of the input, used as the key of error messages.
        content: The content of the file.
        kind: The format of the file: .parquet, or .arrow for Arrow's IPC streaming format.
        column: The name of the column that contains the text.
        all_columns: Whether to read all columns of .parquet. If so, an empty batch with the schema is yielded first.
        new_column: A column that the table must not have, or '' to allow all columns.

    Raises:
        BadInput: The file is damaged or has no such column of strings, or pyarrow is missing.
    """
    pyarrow = import_pyarrow(name)
    row = 0  # the last row read
    try:
        if kind == '.parquet':
            table = pyarrow.parquet.ParquetFile(content, buffer_size=2**18, pre_buffer=False)
            schema, chosen = table.schema_arrow, None if all_columns else [column]
            batches = table.iter_batches(_ROWS, columns=chosen, use_threads=False)
        else:
            batches = pyarrow.ipc.open_stream(content)
            schema = batches.schema
        _check_columns(name, schema.names, column, new_column)
        if all_columns:
            yield pyarrow.RecordBatch.from_pylist([], schema), []
        for batch in batches:
            texts = []
            for text in batch.column(column).to_pylist():
                row += 1
                if fault := find_fault(text):
                    raise BadInput(f'{name}, row {row:,}, column {column!r}', fault)
                texts.append(text or '')
            yield batch, texts
    except UnicodeDecodeError:
        raise BadInput(f'{name}, row {row + 1:,} or later, column {column!r}', 'must be UTF-8 text') from None
    except (pyarrow.ArrowException, OSError, KeyError) as error:  # KeyError: two columns of this name
        raise BadInput(name, f'the file is damaged or is not a {kind} file ({first_line(error)})') from None


def import_pyarrow(name: str) -> Any:
    """Imports pyarrow with its `parquet` module. Raises BadInput(name, ...) if pyarrow is not installed."""
    try:
        import pyarrow.parquet  # noqa: PLC0415 (an optional package)
    except ImportError:
        raise BadInput(name, f'requires pyarrow; {_INSTALL}') from None
    return pyarrow


def _import_zstd(name: str) -> Any:
    try:
        import backports.zstd  # noqa: PLC0415 (an optional package)
    except ImportError:
        raise BadInput(name, f'requires backports.zstd; {_INSTALL}') from None
    return backports.zstd


def _check_columns(where: str, columns: Collection[str], column: str, new_column: str) -> None:
    """Raises BadInput unless `column` is one of the columns of a table and `new_column` is not."""
    if column not in columns:
        known = ', '.join(map(repr, columns)) or 'none'
        raise BadInput(where, f'has no column named {column!r}; the columns are {known}')
    if new_column and new_column in columns:
        raise BadInput(where, f'already has a column named {new_column!r}')


def find_fault(text: Any) -> str:
    """Describes why a table cell is not a text. Returns '' if the cell is None or valid Unicode text without NUL."""
    if text is None:
        return ''
    if not isinstance(text, str):
        return f'must be text, not {type(text).__name__}'
    if '\0' in text:
        return f'contains a NUL character at position {text.index(chr(0)):,}, so it is not text'
    return '' if is_unicode(text) else 'contains an unpaired surrogate, which is not valid Unicode'
