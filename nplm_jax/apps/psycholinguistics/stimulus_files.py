"""Files of stimuli: TSV, CSV and Parquet tables, read into `Stimuli` and written with the columns of a model."""

import csv
import io
import json
import math
import pathlib
import re
from collections.abc import Collection, Sequence
from typing import Any

from nplm_jax.apps.psycholinguistics import stimuli as stimuli_lib
from nplm_jax.apps.psycholinguistics.stimuli import COLUMN_NAMES, ColumnNames, Columns, Place, Stimuli
from nplm_jax.data.formats import find_fault, import_pyarrow
from nplm_jax.utils.errors import BadInput, first_line, require
from nplm_jax.utils.io import expand, write_atomically
from nplm_jax.utils.untrusted import open_regular, read_lines

SUFFIXES = ('.tsv', '.csv', '.parquet')

_SEPARATORS = '\t,;'
_SNIFFED_CHARACTERS = 2**16
_NUMBERS = {  # what becomes a number in Parquet; 007, 1_12 and 1E2 are labels
    int: re.compile('-?(?:0|[1-9][0-9]{0,17})'),
    float: re.compile(r'-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]+(?:[eE][-+]?[0-9]{1,2})?)?'),
}


def check_suffix(key: str, path: pathlib.Path) -> None:
    """Raises BadInput unless the name of the file, the value of the flag `key`, ends in one of SUFFIXES."""
    require(path.suffix.lower() in SUFFIXES, key, str(path), f'must end in {", ".join(SUFFIXES)}')


def find_output(output: str) -> pathlib.Path | None:
    """Returns the path of --output, None where it is empty. Raises BadInput as `check_suffix` does."""
    if not output:
        return None
    path = expand('--output', output)
    check_suffix('--output', path)
    return path


def read(
    path: pathlib.Path,
    names: ColumnNames = COLUMN_NAMES,
    sentence: str = '',
    sentence_flag: str = '',
) -> Stimuli:
    """Reads a table of stimuli; the first line of a TSV or CSV file has the names of its columns.

    Args:
        path: The file, whose kind its suffix tells. The cells of text are separated by tabs, commas or semicolons.
        names: The names of the columns of items, zones and words.
        sentence: The column of sentences of a table with one item a row; empty for a table with one word a row.
        sentence_flag: See `stimuli.from_columns`.

    Raises:
        BadInput: The file cannot be read or is no such table, or `stimuli.from_columns` refuses it.
    """
    check_suffix('--table', path)
    columns, place = read_columns(path)
    if sentence:
        return stimuli_lib.from_sentences(columns, sentence, str(path), names, place)[0]
    return stimuli_lib.from_columns(columns, str(path), names, place, sentence_flag)


def read_columns(path: pathlib.Path) -> tuple[dict[str, list[Any]], Place | None]:
    """Reads the columns of a table; .jsonl has a JSON object a row.

    Returns:
        The columns, and what returns the beginning of an error message on a row, None for Parquet.

    Raises:
        BadInput: The file cannot be read or is no such table, or two columns have one name.
    """
    if path.suffix.lower() == '.parquet':
        header, cells = _read_parquet(path)
        place: Place | None = None
    else:
        header, rows = (_read_jsonl if path.suffix.lower() == '.jsonl' else _read_text)(path)
        cells = [list(column) for column in zip(*rows.values())] or [[] for _ in header]
        place = [f'{path}:{line}' for line in rows].__getitem__
    repeated = next((name for i, name in enumerate(header) if name in header[:i]), None)
    require(repeated is None, 'column', repeated, f'{path} has two of this name')
    return dict(zip(header, cells)), place


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


def _is_missing(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def _format(cell: Any, is_exact: bool = True) -> str:
    if _is_missing(cell):
        return ''
    if isinstance(cell, bool):
        return str(cell).upper()  # base R reads True as text
    return f'{cell:.9g}' if isinstance(cell, float) and not is_exact else str(cell)


def write(
    path: pathlib.Path, columns: Columns, text_columns: Collection[str] = (), own_columns: Collection[str] = ()
) -> None:
    """Writes a table into a file, whose kind its suffix tells.

    Args:
        path: The file.
        columns: The columns, of one length.
        text_columns: The columns that stay text in Parquet, where another column of written numbers becomes numbers.
        own_columns: The columns of the user, as in `to_text`.

    Raises:
        BadInput: The suffix is none of SUFFIXES, or pyarrow is missing or refuses the table.
        OSError: The disk refuses.
    """
    check_suffix('--output', path)
    if path.suffix.lower() != '.parquet':
        write_atomically(path, to_text(columns, ',' if path.suffix.lower() == '.csv' else '\t', own_columns))
        return
    pyarrow = import_pyarrow(str(path))
    cells = {name: column if name in text_columns else _to_numbers(column) for name, column in columns.items()}
    buffer = io.BytesIO()
    try:
        arrays = {name: _to_array(pyarrow, column) for name, column in cells.items()}
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
        texts = [None if _is_missing(cell) else _format(cell) for cell in column]
        return pyarrow.array(texts, pyarrow.string())
    return array


def _to_numbers(column: Sequence[Any]) -> Sequence[Any]:
    """Returns the cells of a text table's column as numbers if all are numbers, and different ones differ."""
    for kind, form in _NUMBERS.items() if all(isinstance(cell, str) for cell in column) else ():
        if all(map(form.fullmatch, column)):
            numbers = list(map(kind, column))
            if len(set(numbers)) == len(set(column)):  # not so 1.1 and 1.10
                return numbers
    return column
