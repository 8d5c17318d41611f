"""The words of an experiment by item and zone, checked.

An item is a text of its own: a sentence, or a story. A zone is the place of a word in its item.
"""

import collections
import dataclasses
import math
import pathlib
import re
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from nplm_jax.apps.psycholinguistics import tables
from nplm_jax.apps.psycholinguistics.tables import Columns, Place
from nplm_jax.data.formats import find_fault
from nplm_jax.data.tokenizers.words import is_punctuation
from nplm_jax.utils.errors import BadInput, require

MAX_CHARACTERS = 999  # of a word

_BLANK_LINES = re.compile(r'\n\s*\n')
_ADD_COLUMNS = 'name all columns that tell items apart (--item=item,condition or --item=item,reader)'


class ColumnNames(NamedTuple):
    """The names of the columns that a table of stimuli needs.

    Attributes:
        item: The columns that together identify an item, such as those of items and conditions.
        zone: The column of the places of the words in their item.
        word: The column of the words.
    """

    item: tuple[str, ...] = ('item',)
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
    place: Place

    @property
    def words(self) -> Sequence[str]:
        """The word of each row."""
        return self.columns[self.names.word]

    @property
    def words_by_item(self) -> list[Sequence[str]]:
        """The words of each item."""
        return [self.words[rows.start : rows.stop] for rows in self.items]

    @property
    def item_W(self) -> np.ndarray:
        """The number of the item of each row, from 0."""
        return np.repeat(np.arange(len(self.items)), list(map(len, self.items)))

    def place_word(self, row: int) -> str:
        """Returns the beginning of an error message on the word of a row, from 0."""
        return f'{self.place(row)}, column {self.names.word!r}'


def shift(values_W: Sequence[float] | np.ndarray, item_W: np.ndarray, distance: int) -> np.ndarray:
    """Returns for each word the value of the word so many places before it in its item, float64, W; nan for none."""
    is_there_W = (np.roll(item_W, distance) == item_W) & (np.arange(len(item_W)) >= distance)
    return np.where(is_there_W, np.roll(np.asarray(values_W, float), distance), np.nan)


def strip_punctuation(word: str) -> str:
    """Returns a word without blanks and punctuation marks at its ends; the whole word if it has nothing else."""
    kept = [i for i, character in enumerate(word) if not (is_punctuation(character) or character.isspace())]
    return word[kept[0] : kept[-1] + 1] if kept else word.strip()


def read(
    table: str | pathlib.Path, names: ColumnNames = COLUMN_NAMES, sentence: str = '', sentence_flag: str = ''
) -> Stimuli:
    """Reads a table of stimuli.

    Args:
        table: The file, the value of --table.
        names: The names of the columns of items, zones and words.
        sentence: The column of sentences of a table with one item a row; empty for a table with one word a row.
        sentence_flag: See `from_columns`.

    Raises:
        BadInput: `tables.read` or `from_columns` refuses the file.
    """
    columns, place, name = tables.read(table)
    if sentence:
        return from_sentences(columns, sentence, name, names, place)[0]
    return from_columns(columns, name, names, place, sentence_flag)


def has_blank_lines(text: str) -> bool:
    """Returns whether blank lines stand between the lines of a text; then they separate its items."""
    return _BLANK_LINES.search(text.strip()) is not None


def from_text(text: str, name: str) -> Stimuli:
    """Reads words that are separated by white space. A line is an item, unless blank lines separate items.

    Items and zones are numbered from 1.

    Args:
        text: The text.
        name: The beginning of error messages.

    Raises:
        BadInput: There is no word, or one is not allowed.
    """
    items = _BLANK_LINES.split(text.strip()) if has_blank_lines(text) else text.strip().split('\n')
    words = [item.split() for item in items]
    columns: Columns = {
        'item': [number for number, item in enumerate(words, start=1) for _ in item],
        'zone': [zone for item in words for zone in range(1, len(item) + 1)],
        'word': [word for item in words for word in item],
    }
    return from_columns(columns, name)


def from_columns(
    columns: Columns,
    name: str,
    names: ColumnNames = COLUMN_NAMES,
    place: Place | None = None,
    sentence_flag: str = '',
) -> Stimuli:
    """Checks a table of stimuli with one row a word.

    Args:
        columns: The columns, of one length; None stands for an empty cell.
        name: The table, for error messages.
        names: The names of the columns of items, zones and words.
        place: Returns the beginning of an error message on a row, from 0; by default the name and the number of the
            row, from 1.
        sentence_flag: What gives the column of sentences instead, for the advice on a table of sentences.

    Raises:
        BadInput: A column is missing, there is no row, a cell is empty or not allowed, or the rows of an item are not
            together and in the order of their zones. The message names row and column.
    """
    place = place or (lambda row: f'{name}, row {row + 1:,}')
    items = [('item', column) for column in names.item]
    if sentence_flag and not {names.zone, names.word} <= columns.keys() and (sentence := _find_sentences(columns)):
        missing, advice = (names.word if names.zone in columns else names.zone), f'give {sentence_flag}{sentence}'
        tables.check_has(columns, name, 'column', missing, f'; one sentence per row? {advice}')
    _check_columns(columns, name, [*items, ('zone', names.zone), ('word', names.word)], place)
    for row, word in enumerate(columns[names.word]):
        if len(word) > MAX_CHARACTERS:
            message = f'a word of {len(word):,} characters; {MAX_CHARACTERS} at most'
            raise BadInput(f'{place(row)}, column {names.word!r}', message)
    return Stimuli(columns, names, _find_items(columns, names, place), place)


def from_sentences(
    columns: Columns, sentence: str, name: str, names: ColumnNames = COLUMN_NAMES, place: Place | None = None
) -> tuple[Stimuli, list[int]]:
    """Cuts a table with one item a row into one with one word a row, at the white space of a column.

    Args:
        columns: The columns, as in `from_columns`. If there is no column `item`, it is added and numbers the rows.
        sentence: The column of the texts of the items.
        name: The table, for error messages.
        names: The columns of items, and the two that are added: zones, numbered from 1, and words.
        place: As in `from_columns`.

    Returns:
        The stimuli, which repeat the cells of an item's row for each of its words; and the row of each word.

    Raises:
        BadInput: As `from_columns`; or two rows are of one item, or there is a column of a name that is added.
    """
    place = place or (lambda row: f'{name}, row {row + 1:,}')
    if names.item == COLUMN_NAMES.item and names.item[0] not in columns and sentence in columns:
        columns = {names.item[0]: range(1, len(columns[sentence]) + 1), **columns}
    _check_columns(columns, name, [*(('item', column) for column in names.item), ('sentence', sentence)], place)
    for role, column in (('zone', names.zone), ('word', names.word)):
        allowed = f'{name} has this column, and the words of {sentence!r} become another; give that another name'
        require(column not in columns, f'{role} column', column, allowed)
    repeated = next((key for key, n in collections.Counter(_item_keys(columns, names)).items() if n > 1), None)
    require(repeated is None, ', '.join(names.item), repeated, f'{name} has two rows of this item; {_ADD_COLUMNS}')
    words = [text.split() for text in columns[sentence]]
    rows = [row for row, item in enumerate(words) for _ in item]
    cut = {column: [cells[row] for row in rows] for column, cells in columns.items()}
    cut[names.zone] = [zone for item in words for zone in range(1, len(item) + 1)]
    cut[names.word] = [word for item in words for word in item]
    return from_columns(cut, name, names, lambda row: place(rows[row])), rows


def _find_sentences(columns: Columns) -> str:
    """Returns the first column most of whose cells have several words; empty if there is none."""
    for name, cells in columns.items():
        if 2 * sum(isinstance(cell, str) and len(cell.split()) > 1 for cell in cells) > len(cells):
            return name
    return ''


def _check_columns(columns: Columns, name: str, roles: Sequence[tuple[str, str]], place: Place) -> None:
    """Raises BadInput unless the columns of these roles exist, differ, and have no empty cell; the last one is text."""
    for role, column in roles:
        use = '; it numbers the words of each item' if role == 'zone' else ''
        tables.check_has(columns, name, f'{role} column', column, use)
    names = [column for _, column in roles]
    require(len(set(names)) == len(names), 'columns', tuple(names), f'{", ".join(r for r, _ in roles)} must differ')
    if not len(columns[names[0]]):
        raise BadInput(name, 'no row')
    for role, column in roles:
        for row, cell in enumerate(columns[column]):
            is_empty = tables.is_missing(cell) or not str(cell).strip()
            fault = 'empty' if is_empty else find_fault(cell) if column == names[-1] else ''
            if role == 'item' and not isinstance(cell, Hashable):
                fault = f'holds {type(cell).__name__}, which names no item'
            if fault:
                raise BadInput(f'{place(row)}, column {column!r}', fault)


def _item_keys(columns: Columns, names: ColumnNames) -> list[tuple[Any, ...]]:
    """Returns what identifies the item of each row."""
    return list(zip(*(columns[column] for column in names.item)))


def _find_items(columns: Columns, names: ColumnNames, place: Place) -> list[range]:
    """Returns the rows of each item. Raises BadInput unless they are consecutive and their zones increase."""
    keys, zones = _item_keys(columns, names), columns[names.zone]
    starts: dict[tuple[Any, ...], int] = {}
    for row, key in enumerate(keys):
        fault = ''
        if row == 0 or key != keys[row - 1]:
            if (first := starts.setdefault(key, row)) != row:
                fault = f'item {", ".join(map(str, key))!r} began at row {first + 1:,} and another item came between'
        elif not _to_number(zones[row - 1], -math.inf) < _to_number(zones[row], math.inf):
            fault = f'zone {zones[row]!r} comes after zone {zones[row - 1]!r} of the same item'
        if fault:
            raise BadInput(place(row), f'{fault}; sort the table by item and zone, or {_ADD_COLUMNS}')
    return list(map(range, starts.values(), [*list(starts.values())[1:], len(keys)]))


def _to_number(zone: Any, default: float) -> float:
    """Returns a zone as a number; the default for a name, such as 1_10, which has no order."""
    try:
        return default if '_' in str(zone) else float(zone)
    except (TypeError, ValueError, OverflowError):
        return default
