"""Reads TSV, CSV, JSON Lines and Parquet tables, and writes TSV, CSV and Parquet tables."""

import csv
import io
import json
import math
import pathlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from nplm_jax.data.formats import import_pyarrow
from nplm_jax.utils.errors import BadInput, first_line, require
from nplm_jax.utils.io import expand, write_atomically
from nplm_jax.utils.names import did_you_mean
from nplm_jax.utils.untrusted import open_regular, read_lines

Columns = Mapping[str, Sequence[Any]]
Locate = Callable[[int], str]  # converts a row index to its location in error messages

WRITTEN = ('.tsv', '.csv', '.parquet')
READ = (*WRITTEN, '.jsonl')

_SEPARATORS = '\t,;'
_SNIFFED_CHARACTERS = 2**16


def find_output(output: str) -> pathlib.Path | None:
    """Returns the path of --output, or None if it is empty.

    Raises:
        BadInput: The suffix is not in WRITTEN, or it is `.parquet` and pyarrow is not installed.
    """
    path = _find('--output', output, WRITTEN) if output else None
    if path and path.suffix.lower() == '.parquet':
        import_pyarrow(str(path))  # report a missing package before the models are measured
    return path


def _find(flag: str, file: str, suffixes: Sequence[str]) -> pathlib.Path:
    path = expand(flag, file)
    require(path.suffix.lower() in suffixes, flag, file, f'must end in one of {", ".join(suffixes)}')
    return path


def check_new(columns: Columns, added: Iterable[str]) -> None:
    """Raises BadInput if a table already has one of the columns to add, or if two columns to add have the same name."""
    names = list(added)
    taken = next((key for i, key in enumerate(names) if key in columns or key in names[:i]), None)
    require(taken is None, 'column', taken, 'is also the name of an additional column; rename the column or the run')


def check_has(columns: Columns, name: str, key: str, column: str, advice: str) -> None:
    """Raises BadInput if a table lacks a column. The message lists its columns and suggests the nearest name.

    Args:
        columns: The columns of the table.
        name: The name of the table in the message.
        key: The key of the error: the role of the column, or the flag that names it.
        column: The name of the column.
        advice: The text at the end of the message.
    """
    has = ', '.join(map(repr, columns)) or 'none'
    near = did_you_mean(column, map(str, columns))
    require(column in columns, key, column, f'is not a column of {name}; its columns are {has}{near}{advice}')


def is_missing(cell: Any) -> bool:
    """Returns whether a cell is None or NaN."""
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def read(table: str | pathlib.Path) -> tuple[dict[str, list[Any]], Locate, str]:
    """Reads the columns of a table.

    The suffix of the file determines its format. A TSV or CSV file has a header, and its cells are separated by tabs,
    commas or semicolons and remain text. A JSON Lines file has one object per row.

    Args:
        table: The path of the file, as given by --table.

    Returns:
        The columns, a function from a row index to its location in error messages, and the path as a string.

    Raises:
        BadInput: The file cannot be read or parsed, or two columns have the same name.
    """
    path = _find('--table', str(table), READ)
    if path.suffix.lower() == '.parquet':
        (header, cells), lines = _read_parquet(path), []
    else:
        header, rows = (_read_jsonl if path.suffix.lower() == '.jsonl' else _read_text)(path)
        cells, lines = [list(column) for column in zip(*rows.values())] or [[] for _ in header], list(rows)

    def locate(row: int) -> str:
        return f'{path}:{lines[row]}' if lines else f'{path}, row {row + 1:,}'

    repeated = next((name for i, name in enumerate(header) if name in header[:i]), None)
    require(repeated is None, 'column', repeated, f'occurs twice in {path}')
    return dict(zip(header, cells)), locate, str(path)


def _read_jsonl(path: pathlib.Path) -> tuple[list[str], dict[int, list[Any]]]:
    """Returns the keys of all objects, and the cells of each line by line number. Missing keys become None."""
    objects: dict[int, dict[str, Any]] = {}
    for number, line in read_lines(path):
        if line.strip():
            try:
                objects[number] = json.loads(line)
                json.dumps(objects[number], ensure_ascii=False).encode()  # raises ValueError for an unpaired surrogate
            except (ValueError, RecursionError) as error:
                raise BadInput(f'{path}:{number}', f'is not valid JSON ({first_line(error)})') from None
            if not isinstance(objects[number], dict):
                raise BadInput(f'{path}:{number}', 'is not a JSON object')
    header = list(dict.fromkeys(key for row in objects.values() for key in row))
    return header, {number: [row.get(key) for key in header] for number, row in objects.items()}


def _read_text(path: pathlib.Path) -> tuple[list[str], dict[int, list[str]]]:
    """Returns the header of a TSV or CSV file, and the cells of each line by line number. Skips blank lines.

    In TSV files, quotation marks have a special meaning only if they enclose a whole cell and all quotation marks
    inside the cell are doubled.
    """
    text = ''.join(line for _, line in read_lines(path))
    separator = _find_separator(text, default=',' if path.suffix.lower() == '.csv' else '\t')
    is_tsv = separator == '\t'
    lines = io.StringIO(text, newline='')
    quoting = csv.QUOTE_NONE if is_tsv else csv.QUOTE_MINIMAL
    reader = csv.reader(lines, delimiter=separator, quoting=quoting, strict=True)  # type: ignore[arg-type]
    rows: dict[int, list[str]] = {}
    try:
        for cells in filter(None, reader):
            rows[reader.line_num] = list(map(_unquote, cells)) if is_tsv else cells
    except csv.Error as error:
        raise BadInput(f'{path}:{reader.line_num}', f'is not valid CSV ({error})') from None
    header = rows.pop(min(rows)) if rows else []
    for line, cells in rows.items():
        if len(cells) != len(header):
            raise BadInput(f'{path}:{line}', f'has {len(cells)} cells, but the header has {len(header)}')
    return header, rows


def _find_separator(text: str, default: str) -> str:
    """Detects the separator of a table: the character that most lines contain as often as the header.

    Reads only the first lines and ignores quoted text. Returns the default if the header has no separator, as in a
    table with one column.
    """
    lines = [re.sub(r'"[^"]*"', '', line) for line in text[:_SNIFFED_CHARACTERS].split('\n') if line.strip()]
    counts = {s: [line.count(s) for line in lines] for s in _SEPARATORS if lines and s in lines[0]}
    return max(counts, key=lambda s: (counts[s].count(counts[s][0]), counts[s][0]), default=default)


def _unquote(cell: str) -> str:
    is_quoted = re.fullmatch(r'"(?:[^"]|"")*"', cell)  # unlike `"Yes," she said, "no."`
    return cell[1:-1].replace('""', '"') if is_quoted else cell


def _read_parquet(path: pathlib.Path) -> tuple[list[str], list[list[Any]]]:
    """Returns the names and the columns of a Parquet file. Dictionary-encoded columns are decoded."""
    pyarrow = import_pyarrow(str(path))
    try:
        with open_regular(str(path), path) as file:
            table = pyarrow.parquet.read_table(file, use_threads=False)
            return table.column_names, [column.to_pylist() for column in table.columns]
    except OverflowError as error:  # a time after the year 9999
        raise BadInput(path, f'cannot be read ({first_line(error)})') from None
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError) as error:
        raise BadInput(path, f'is damaged or not a .parquet file ({first_line(error)})') from None


def to_text(columns: Columns, separator: str = '\t', own_columns: Collection[str] = ()) -> str:
    """Formats a table as text with a header.

    Missing numbers are empty cells, and booleans are TRUE or FALSE, as in R.

    Args:
        columns: The columns, of equal length.
        separator: The separator of cells.
        own_columns: The user's columns. Their floats keep all digits. Floats in other columns are written with 9
            significant digits.
    """
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator='\n')
    writer.writerow(columns)
    cells = ([_format(cell, name in own_columns) for cell in column] for name, column in columns.items())
    writer.writerows(zip(*cells))
    return text.getvalue()


def _format(cell: Any, is_exact: bool = True) -> str:
    if is_missing(cell):
        return ''
    if isinstance(cell, bool):
        return str(cell).upper()  # base R would read True as text
    return f'{cell:.9g}' if isinstance(cell, float) and not is_exact else str(cell)


def write(path: pathlib.Path, columns: Columns, own_columns: Collection[str] = ()) -> None:
    """Writes a table to a file. The suffix, which must be in WRITTEN, determines the format.

    Args:
        path: The file.
        columns: The columns, of equal length.
        own_columns: The user's columns. See `to_text`.

    Raises:
        BadInput: pyarrow is not installed, or rejects the table.
        OSError: The file cannot be written.
    """
    if path.suffix.lower() != '.parquet':
        write_atomically(path, to_text(columns, ',' if path.suffix.lower() == '.csv' else '\t', own_columns))
        return
    pyarrow = import_pyarrow(str(path))
    buffer = io.BytesIO()
    try:
        arrays = {name: _to_array(pyarrow, column) for name, column in columns.items()}
        pyarrow.parquet.write_table(pyarrow.table(arrays), buffer)
    except (pyarrow.ArrowException, ValueError, OverflowError) as error:
        raise BadInput(path, f'cannot be written as .parquet ({first_line(error)})') from None
    write_atomically(path, buffer.getvalue())


def _to_array(pyarrow: Any, column: Sequence[Any]) -> Any:
    """Converts a column for Parquet. A column with mixed or unsupported types becomes text."""
    try:
        array = pyarrow.array(column, from_pandas=True)
        pyarrow.parquet.write_table(pyarrow.table({'': array[:0]}), io.BytesIO())
    except (pyarrow.ArrowException, OverflowError):
        texts = [None if is_missing(cell) else _format(cell) for cell in column]
        return pyarrow.array(texts, pyarrow.string())
    return array
