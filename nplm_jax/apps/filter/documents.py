"""Reads documents in batches of bounded size, and writes selected documents in the same format.

A document is a row of a .jsonl or .parquet file, or a line or paragraph of any other file. Text and .jsonl files may be
compressed (.gz, .zst).

Dims: D documents in a batch.
"""

import contextlib
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, BinaryIO, NamedTuple

import numpy as np

from nplm_jax.data import formats
from nplm_jax.reporting.text import to_json
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import open_atomically
from nplm_jax.utils.untrusted import decode_lines, open_regular

JSON, PARQUET, TEXT = '.jsonl', '.parquet', ''

_CHARACTERS = 2**19  # approximate number of characters in a batch
_MAX_BYTES = 2**28  # maximum size of a line of text
_GROUP_BYTES, _GROUP_ROWS = 2**26, 2**16  # a row group is written when it has this many bytes or rows


class Layout(NamedTuple):
    """The layout of the documents in a file.

    Attributes:
        field: The column that contains the text in .jsonl and .parquet files.
        paragraphs: Whether documents in a text file are paragraphs, separated by empty lines, rather than lines.
        column: The output column for the perplexity. Empty for no column.
    """

    field: str = 'text'
    paragraphs: bool = False
    column: str = ''


class Batch(NamedTuple):
    """Consecutive documents of a file.

    Attributes:
        texts: The texts of the documents.
        rows: The documents as stored in the file: lines of JSON, paragraphs or lines of text, or pyarrow record
            batches.
        position: The number of bytes read from the file so far.
    """

    texts: list[str]
    rows: list[Any]
    position: int


Write = Callable[[Batch, np.ndarray, np.ndarray], None]
"""A function that takes a batch, a mask (bool, D) of the documents to write, and all perplexities (float64, D)."""


def kind_of(file: pathlib.Path, flag: str = '--text') -> str:
    """Returns the format of a file named by a flag: JSON, PARQUET or TEXT. Raises BadInput for other formats."""
    kind, compression = formats.split_suffix(file)
    is_allowed = kind not in ('.arrow', *formats.COMPRESSED) and not (kind == PARQUET and compression)
    allowed = 'must be a .parquet file, or a .jsonl or text file, which may be compressed (.gz, .zst)'
    require(is_allowed, flag, str(file), allowed)
    return kind if kind in (JSON, PARQUET) else TEXT


def read(file: pathlib.Path, layout: Layout) -> Iterator[Batch]:
    """Reads the documents of a file.

    Raises:
        BadInput: The file is missing, damaged or not text, lacks the text column, or already has the perplexity column.
            Also raised if a package that is required to read it is missing. The message names the file and, for text,
            the line.
    """
    name, kind, compression = str(file), kind_of(file), formats.split_suffix(file)[1]
    require(not layout.column or kind != TEXT, '--column', layout.column, f'{file} is text, which has no columns')
    with open_regular(name, file) as opened, formats.decompress(name, opened, compression) as content:
        rows: Iterable[tuple[Any, list[str]]]
        if kind == JSON:
            lines = formats.read_json_rows(file, content, layout.field, layout.column)
            rows = ((line, [text]) for line, text in lines if line)
        elif kind == PARQUET:
            rows = formats.read_batches(name, content, kind, layout.field, True, layout.column)
        else:
            texts = _lines(file, content)
            rows = ((text, [text]) for text in (_paragraphs(texts) if layout.paragraphs else texts))
        yield from _group(rows, opened.tell)


@contextlib.contextmanager
def write(file: pathlib.Path, layout: Layout) -> Iterator[Write]:
    """Opens a file for writing documents that `read` yielded from a file of the same format.

    The file has a temporary name until the block ends without an exception.

    Args:
        file: The file.
        layout: The layout of the file that was read.

    Yields:
        A function that writes documents.

    Raises:
        BadInput: A package that is required to write the file is missing.
        OSError: The file cannot be written.
    """
    name, compression = str(file), formats.split_suffix(file)[1]
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(open_atomically(file))
        if kind_of(file) == PARQUET:
            writer = _ParquetWriter(formats.import_pyarrow(name), opened, layout.column)
            stack.callback(writer.close)  # close the writer before the file, even after an error
            yield writer.write
            return
        content = stack.enter_context(formats.compress(name, opened, compression))

        def write_lines(batch: Batch, is_kept_D: np.ndarray, perplexities_D: np.ndarray) -> None:
            for i in np.flatnonzero(is_kept_D).tolist():
                row = batch.rows[i]
                data = row if isinstance(row, bytes) else row.encode() + b'\n' * layout.paragraphs
                if layout.column:  # the rows are lines of JSON
                    data = data[:-1].rstrip() + b', ' + to_json({layout.column: float(perplexities_D[i])})[1:].encode()
                content.write(data + b'\n')

        yield write_lines


def _group(rows: Iterable[tuple[Any, list[str]]], position: Callable[[], int]) -> Iterator[Batch]:
    """Collects rows and their texts in batches of about _CHARACTERS characters."""
    kept: list[Any] = []
    texts: list[str] = []
    size = 0
    for row, row_texts in rows:
        kept.append(row)
        texts += row_texts
        size += sum(map(len, row_texts)) + len(row_texts)
        if size >= _CHARACTERS:
            yield Batch(texts, kept, position())
            kept, texts, size = [], [], 0
    if kept:
        yield Batch(texts, kept, position())


def _lines(file: pathlib.Path, content: BinaryIO) -> Iterator[str]:
    """Yields the lines of a text, without newlines. Raises BadInput with the line number if a line is not text."""
    for number in itertools.count(1):
        if not (data := content.readline(_MAX_BYTES + 1)):
            return
        if len(data) > _MAX_BYTES:
            raise BadInput(f'{file}:{number}', f'the line is longer than {_MAX_BYTES:,} bytes')
        _, line = next(decode_lines(file, data, number), (number, ''))
        yield line.removesuffix('\n')


def _paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Yields the paragraphs of a text. Paragraphs are separated by empty lines."""
    for has_words, group in itertools.groupby(lines, lambda line: bool(line.strip())):
        if has_words:
            yield '\n'.join(group)


class _ParquetWriter:
    """Writes tables in large row groups, with the schema of the first table."""

    def __init__(self, pyarrow: Any, file: IO[bytes], column: str) -> None:
        self._pyarrow, self._file, self._column = pyarrow, file, column
        self._writer: Any = None
        self._tables: list[Any] = []
        self._rows = self._bytes = 0  # totals of the tables that are not written yet

    def write(self, batch: Batch, is_kept_D: np.ndarray, perplexities_D: np.ndarray) -> None:
        """See `Write`."""
        table = self._pyarrow.Table.from_batches(batch.rows)
        if self._column:
            table = table.append_column(self._column, self._pyarrow.array(perplexities_D, self._pyarrow.float64()))
            metadata = dict(table.schema.metadata or {})
            metadata.pop(b'huggingface', None)  # it lists the columns, and would lack the new one
            table = table.replace_schema_metadata(metadata)
        if self._writer is None:
            self._writer = self._pyarrow.parquet.ParquetWriter(self._file, table.schema)
        if is_kept_D.any():
            self._tables.append(table.filter(self._pyarrow.array(is_kept_D)))
            self._rows += self._tables[-1].num_rows
            self._bytes += self._tables[-1].nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Writes the remaining rows and the end of the file."""
        if self._writer:
            with self._writer:
                self._flush()

    def _flush(self) -> None:
        if self._tables:
            self._writer.write_table(self._pyarrow.concat_tables(self._tables))
        self._tables, self._rows, self._bytes = [], 0, 0
