"""Tables of all commands of the app: TSV, CSV, JSON lines and Parquet in; TSV, CSV and Parquet out."""

import csv
import io
import json
import math
import pathlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from nplm_jax.data.formats import find_fault, import_pyarrow
from nplm_jax.utils.errors import BadInput, first_line, require
from nplm_jax.utils.io import expand, write_atomically
from nplm_jax.utils.names import did_you_mean
from nplm_jax.utils.untrusted import open_regular, read_lines

Columns = Mapping[str, Sequence[Any]]
Place = Callable[[int], str]  # the beginning of an error message on a row, from 0

WRITTEN = ('.tsv', '.csv', '.parquet')
READ = (*WRITTEN, '.jsonl')

_SEPARATORS = '\t,;'
_SNIFFED_CHARACTERS = 2**16


def find_output(output: str) -> pathlib.Path | None:
    """Returns the path of --output, None if it is empty. Raises BadInput if its suffix is none of WRITTEN."""
    return _find('--output', output, WRITTEN) if output else None


def _find(flag: str, file: str, suffixes: Sequence[str]) -> pathlib.Path:
    path = expand(flag, file)
    require(path.suffix.lower() in suffixes, flag, file, f'must end in {", ".join(suffixes)}')
    return path


def check_new(columns: Columns, added: Iterable[str]) -> None:
    """Raises BadInput if a table has a column of a name that is added."""
    taken = next((key for key in added if key in columns), None)
    require(taken is None, 'column', taken, 'is the name of a column that is added; rename it')


def check_has(columns: Columns, name: str, key: str, column: str, advice: str = '') -> None:
    """Raises BadInput(key, column, ...) if a table has no such column; the message lists its columns.

    Args:
        columns: The columns.
        name: The table, for the message.
        key: The role of the column, or its flag.
        column: The column.
        advice: The end of the message; the nearest name comes before it.
    """
    has = ', '.join(map(repr, columns)) or 'none'
    near = did_you_mean(column, map(str, columns))
    require(column in columns, key, column, f'{name} has no such column; it has {has}{near}{advice}')


def is_missing(cell: Any) -> bool:
    """Tells whether a cell is None or nan."""
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def read(table: str | pathlib.Path) -> tuple[dict[str, list[Any]], Place, str]:
    """Reads the columns of a table.

    The suffix of the file tells its format. The first line of a TSV or CSV file has the names of its columns, and tabs,
    commas or semicolons separate its cells, which stay text. JSON lines have one object a row.

    Args:
        table: The file, the value of --table.

    Returns:
        The columns; the function that returns the beginning of an error message on a row; the path, for other messages.

    Raises:
        BadInput: The file cannot be read or is no such table, or two columns have one name.
    """
    path = _find('--table', str(table), READ)
    if path.suffix.lower() == '.parquet':
        (header, cells), lines = _read_parquet(path), []
    else:
        header, rows = (_read_jsonl if path.suffix.lower() == '.jsonl' else _read_text)(path)
        cells, lines = [list(column) for column in zip(*rows.values())] or [[] for _ in header], list(rows)

    def place(row: int) -> str:
        return f'{path}:{lines[row]}' if lines else f'{path}, row {row + 1:,}'

    repeated = next((name for i, name in enumerate(header) if name in header[:i]), None)
    require(repeated is None, 'column', repeated, f'{path} has two of this name')
    return dict(zip(header, cells)), place, str(path)


def _read_jsonl(path: pathlib.Path) -> tuple[list[str], dict[int, list[Any]]]:
    """Returns the keys of all objects, and the cells of each row by its line, None where an object lacks a key."""
    objects: dict[int, dict[str, Any]] = {}
    for number, line in read_lines(path):
        if line.strip():
            try:
                objects[number] = json.loads(line)
                fault = find_fault(json.dumps(objects[number], ensure_ascii=False))  # an unpaired surrogate
            except (ValueError, RecursionError) as error:
                raise BadInput(f'{path}:{number}', f'not JSON ({first_line(error)})') from None
            if fault or not isinstance(objects[number], dict):
                raise BadInput(f'{path}:{number}', f'{fault or "not a JSON object"}')
    header = list(dict.fromkeys(key for row in objects.values() for key in row))
    return header, {number: [row.get(key) for key in header] for number, row in objects.items()}


def _read_text(path: pathlib.Path) -> tuple[list[str], dict[int, list[str]]]:
    """Returns the header of a TSV or CSV file, and the cells of each row by its line; blank lines are left out.

    In TSV a cell between two quotation marks is a quoted one, and other quotation marks belong to the cell.
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
        raise BadInput(f'{path}:{reader.line_num}', f'not CSV ({error})') from None
    header = rows.pop(min(rows)) if rows else []
    for line, cells in rows.items():
        if len(cells) != len(header):
            raise BadInput(f'{path}:{line}', f'{len(cells)} cells; the header has {len(header)}')
    return header, rows


def _find_separator(text: str, default: str) -> str:
    """Returns what separates the cells of a table: of the separators in the header, the one that cuts most rows alike.

    Decides by the first lines. Separators between quotation marks do not count. Without one in the header it is the
    default, as for a table of one column.
    """
    lines = [re.sub(r'"[^"]*"', '', line) for line in text[:_SNIFFED_CHARACTERS].split('\n') if line.strip()]
    counts = {s: [line.count(s) for line in lines] for s in _SEPARATORS if lines and s in lines[0]}
    return max(counts, key=lambda s: (counts[s].count(counts[s][0]), counts[s][0]), default=default)


def _unquote(cell: str) -> str:
    quoted = len(cell) >= 2 and cell[0] == cell[-1] == '"'
    return cell[1:-1].replace('""', '"') if quoted else cell


def _read_parquet(path: pathlib.Path) -> tuple[list[str], list[list[Any]]]:
    """Returns the names and the columns of a Parquet file; those of dictionaries as their values."""
    pyarrow = import_pyarrow(str(path))
    try:
        with open_regular(str(path), path) as file:
            table = pyarrow.parquet.read_table(file, use_threads=False)
            return table.column_names, [column.to_pylist() for column in table.columns]
    except OverflowError as error:  # a time after the year 9999
        raise BadInput(path, f'cannot be read ({first_line(error)})') from None
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError) as error:
        raise BadInput(path, f'damaged or not .parquet ({first_line(error)})') from None


def to_text(columns: Columns, separator: str = '\t', own_columns: Collection[str] = ()) -> str:
    """Returns a table of text with a header. A missing number is an empty cell, a bool TRUE or FALSE, which R reads.

    Args:
        columns: The columns, of one length.
        separator: What separates the cells.
        own_columns: The columns of the user, whose floats keep all digits; those of other columns have 9.
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
        return str(cell).upper()  # base R reads True as text
    return f'{cell:.9g}' if isinstance(cell, float) and not is_exact else str(cell)


def write(path: pathlib.Path, columns: Columns, own_columns: Collection[str] = ()) -> None:
    """Writes a table into a file of one of the suffixes WRITTEN.

    Args:
        path: The file.
        columns: The columns, of one length.
        own_columns: The columns of the user, as in `to_text`.

    Raises:
        BadInput: pyarrow is missing or refuses the table.
        OSError: The disk refuses.
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
    """Returns a column of Parquet; one of cells of several types, or of a type that Parquet lacks, as text."""
    try:
        array = pyarrow.array(column, from_pandas=True)
        pyarrow.parquet.write_table(pyarrow.table({'': array[:0]}), io.BytesIO())
    except (pyarrow.ArrowException, OverflowError):
        texts = [None if is_missing(cell) else _format(cell) for cell in column]
        return pyarrow.array(texts, pyarrow.string())
    return array
