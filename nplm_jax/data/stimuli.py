"""The words of an experiment by item and zone, checked.

An item is a text of its own: a sentence, or a story. A zone is the place of a word in its item.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from nplm_jax.utils.errors import BadInput, require

MAX_CHARACTERS = 999  # of a word

Columns = Mapping[str, Sequence[Any]]


class ColumnNames(NamedTuple):
    """The names of the columns that a table of stimuli needs."""

    item: str = 'item'
    zone: str = 'zone'
    word: str = 'word'


COLUMN_NAMES = ColumnNames()


@dataclasses.dataclass(frozen=True)
class Stimuli:
    """A table with one row a word, whose items are consecutive rows.

    Attributes:
        columns: All columns of the table, each with a value for every row.
        names: The names of the columns of items, zones and words.
        items: The rows of each item, in order.
        place: Returns the beginning of an error message on a row, from 0.
    """

    columns: Columns
    names: ColumnNames
    items: Sequence[range]
    place: Callable[[int], str]

    @property
    def words(self) -> Sequence[str]:
        """The word of each row."""
        return self.columns[self.names.word]

    def place_word(self, row: int) -> str:
        """Returns the beginning of an error message on the word of a row, from 0."""
        return f'{self.place(row)}, column {self.names.word!r}'


def from_text(text: str, name: str) -> Stimuli:
    """Reads words that are separated by white space, and items that are separated by blank lines.

    Items and zones are numbered from 1.

    Args:
        text: The text.
        name: The beginning of error messages.

    Raises:
        BadInput: There is no word, or one is not allowed.
    """
    items: list[int] = []
    zones: list[int] = []
    words: list[str] = []
    blocks: list[list[str]] = [[]]
    for line in text.split('\n'):
        if line.strip():
            blocks[-1] += line.split()
        elif blocks[-1]:
            blocks.append([])
    for number, block in enumerate(filter(None, blocks), start=1):
        items += [number] * len(block)
        zones += range(1, len(block) + 1)
        words += block
    return from_columns({'item': items, 'zone': zones, 'word': words}, name)


def from_columns(
    columns: Columns,
    name: str,
    names: ColumnNames = COLUMN_NAMES,
    place: Callable[[int], str] | None = None,
) -> Stimuli:
    """Checks a table of stimuli.

    Args:
        columns: The columns, of one length; None stands for an empty cell.
        name: The table, for error messages.
        names: The names of the columns of items, zones and words.
        place: As in `Stimuli`; by default the name and the number of the row, from 1.

    Raises:
        BadInput: A column is missing, there is no row, a cell is empty or not allowed, or the rows of an item are not
            together and in the order of their zones. The message names row and column.
    """
    place = place or functools.partial(_describe_row, name)
    for role, column in zip(names._fields, names):
        has = ', '.join(map(repr, columns)) or 'none'
        require(column in columns, f'{role} column', column, f'{name} has no such column; it has {has}')
    require(len(set(names)) == 3, 'columns', tuple(names), 'item, zone and word must be three columns')
    if not len(columns[names.word]):
        raise BadInput(f'{name}: no row')
    for row, cells in enumerate(zip(*(columns[column] for column in names))):
        for column, cell in zip(names, cells):
            _check_cell(f'{place(row)}, column {column!r}', cell)
        _check_word(f'{place(row)}, column {names.word!r}', cells[2])
    return Stimuli(columns, names, _find_items(columns, names, place), place)


def _describe_row(name: str, row: int) -> str:
    return f'{name}, row {row + 1:,}'


def _check_cell(where: str, cell: Any) -> None:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)) or (isinstance(cell, str) and not cell.strip()):
        raise BadInput(f'{where}: empty')
    if isinstance(cell, str) and '\0' in cell:
        raise BadInput(f'{where}: binary, not text (NUL at character {cell.index(chr(0)):,})')


def _check_word(where: str, word: Any) -> None:
    if not isinstance(word, str):
        raise BadInput(f'{where}: holds {type(word).__name__}, not text')
    if len(word) > MAX_CHARACTERS:
        raise BadInput(f'{where}: a word of {len(word):,} characters; {MAX_CHARACTERS} at most')
    if not word.isascii() and any('\ud800' <= c <= '\udfff' for c in word):
        raise BadInput(f'{where}: not valid Unicode')


def _find_items(columns: Columns, names: ColumnNames, place: Callable[[int], str]) -> list[range]:
    """Returns the rows of each item. Raises BadInput unless they are consecutive and their zones increase."""
    items, zones = columns[names.item], columns[names.zone]
    starts = [row for row in range(len(items)) if row == 0 or items[row] != items[row - 1]]
    first_rows: dict[Any, int] = {}
    for row in starts:
        if (first := first_rows.setdefault(items[row], row)) != row:
            message = f'item {items[row]!r} began at row {first + 1:,} and another item came between; sort the table'
            raise BadInput(f'{place(row)}, column {names.item!r}: {message} by item and zone')
    ranges = [range(start, stop) for start, stop in zip(starts, [*starts[1:], len(items)])]
    for rows in ranges:
        numbers = [_to_number(zones[row]) for row in rows]
        for row, before, number in zip(rows[1:], numbers, numbers[1:]):
            if before is not None and number is not None and number <= before:
                message = f'zone {zones[row]!r} comes after zone {zones[row - 1]!r} of the same item; sort the table'
                raise BadInput(f'{place(row)}, column {names.zone!r}: {message} by item and zone')
    return ranges


def _to_number(zone: Any) -> float | None:
    """Returns a zone as a number; None for a name, which has no order."""
    try:
        return float(zone)
    except (TypeError, ValueError):
        return None
