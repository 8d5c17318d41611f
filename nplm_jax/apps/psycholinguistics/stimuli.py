"""Reads and validates the stimuli of an experiment, which are words grouped by item and ordered by zone.

An item is an independent text, such as a sentence or a story. A zone is the position of a word in its item.
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
from nplm_jax.apps.psycholinguistics.tables import Columns, Locate
from nplm_jax.data.formats import find_fault
from nplm_jax.data.tokenizers.tokenizer import BLANK_LINES
from nplm_jax.data.tokenizers.words import is_punctuation
from nplm_jax.utils.errors import BadInput, require

MAX_CHARACTERS = 999  # maximum length of a word

_DECIMAL_COMMA = re.compile(r'^([-+]?\d+),(\d{1,2}|\d{4,})$')

_ADD_COLUMNS = 'list all columns that identify an item (--item=item,condition or --item=item,reader)'


class ColumnNames(NamedTuple):
    """Names of the columns that a table of stimuli must have.

    Attributes:
        item: The columns that together identify an item, such as `item` and `condition`.
        zone: The column with the position of each word in its item.
        word: The column of words.
    """

    item: tuple[str, ...] = ('item',)
    zone: str = 'zone'
    word: str = 'word'


COLUMN_NAMES = ColumnNames()


@dataclasses.dataclass(frozen=True)
class Stimuli:
    """A table with one row per word, in which the rows of an item are adjacent.

    Attributes:
        columns: All columns of the table, with one value per row.
        names: The names of the item, zone and word columns.
        items: The rows of each item, in order.
        locate: A function from a row index to its location in error messages.
    """

    columns: Columns
    names: ColumnNames
    items: Sequence[range]
    locate: Locate

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
        """The item index of each row, W."""
        return np.repeat(np.arange(len(self.items)), list(map(len, self.items)))

    def locate_word(self, row: int) -> str:
        """Returns the location of the word in a row, for error messages."""
        return f'{self.locate(row)}, column {self.names.word!r}'


def shift(values_W: Sequence[float] | np.ndarray, item_W: np.ndarray, distance: int) -> np.ndarray:
    """Returns, for each word, the float64 value of the word that is `distance` words earlier.

    The value is NaN if the item has no such word.

    Args:
        values_W: The value of each word.
        item_W: The item index of each word.
        distance: The distance in words.
    """
    is_there_W = (np.roll(item_W, distance) == item_W) & (np.arange(len(item_W)) >= distance)
    return np.where(is_there_W, np.roll(np.asarray(values_W, float), distance), np.nan)


def strip_punctuation(word: str) -> str:
    """Strips whitespace and punctuation from both ends of a word. If nothing else remains, strips only whitespace."""
    kept = [i for i, character in enumerate(word) if not (is_punctuation(character) or character.isspace())]
    return word[kept[0] : kept[-1] + 1] if kept else word.strip()


def read(
    table: str | pathlib.Path, names: ColumnNames = COLUMN_NAMES, sentence: str = '', sentence_flag: str = ''
) -> Stimuli:
    """Reads a table of stimuli.

    Args:
        table: The path of the file, as given by --table.
        names: The names of the item, zone and word columns.
        sentence: The column of sentences if the table has one row per item. '' if it has one row per word.
        sentence_flag: See `from_columns`.

    Raises:
        BadInput: `tables.read` or `from_columns` rejects the file.
    """
    columns, locate, name = tables.read(table)
    if sentence:
        return from_sentences(columns, sentence, name, names, locate)[0]
    return from_columns(columns, name, names, locate, sentence_flag)


def has_blank_lines(text: str) -> bool:
    """Returns whether a text contains blank lines. If so, they separate its items."""
    return BLANK_LINES.search(text.strip()) is not None


def from_text(text: str, name: str) -> Stimuli:
    """Splits text into words at whitespace, with one item per line or, if there are blank lines, per paragraph.

    Items and zones are numbered from 1.

    Args:
        text: The text.
        name: The name of the text in error messages.

    Raises:
        BadInput: The text has no words, or a word is invalid.
    """
    items = BLANK_LINES.split(text.strip()) if has_blank_lines(text) else text.strip().split('\n')
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
    locate: Locate | None = None,
    sentence_flag: str = '',
) -> Stimuli:
    """Validates a table of stimuli with one row per word.

    Args:
        columns: The columns, which have equal lengths. None stands for an empty cell.
        name: The name of the table in error messages.
        names: The names of the item, zone and word columns.
        locate: A function from a row index to its location in error messages. The default location is the name and the
            row number.
        sentence_flag: The beginning of the flag for a column of sentences, such as `--sentence=`. If the table seems to
            have one row per item, the error message suggests this flag.

    Raises:
        BadInput: A column is missing, the table has no rows, a cell is empty or invalid, or the rows of an item are not
            adjacent and ordered by zone. The key names the row and column.
    """
    locate = locate or (lambda row: f'{name}, row {row + 1:,}')
    items = [('item', column) for column in names.item]
    if sentence_flag and not {names.zone, names.word} <= columns.keys() and (sentence := _find_sentences(columns)):
        missing, advice = (names.word if names.zone in columns else names.zone), f'give {sentence_flag}{sentence}'
        tables.check_has(columns, name, 'column', missing, f'; if each row is a sentence, {advice}')
    _check_columns(columns, name, [*items, ('zone', names.zone), ('word', names.word)], locate)
    return Stimuli(columns, names, _find_items(columns, names, locate), locate)


def from_sentences(
    columns: Columns, sentence: str, name: str, names: ColumnNames = COLUMN_NAMES, locate: Locate | None = None
) -> tuple[Stimuli, list[int]]:
    """Splits the sentences of a table, with one row per item, into words at whitespace.

    Args:
        columns: The columns. See `from_columns`. If there is no column `item`, a column with row numbers is added.
        sentence: The column of sentences.
        name: The name of the table in error messages.
        names: The names of the item column and of the two columns to add, for zones (numbered from 1) and words.
        locate: See `from_columns`.

    Returns:
        The stimuli, in which the cells of an item are repeated for each of its words, and the original row of each
        word.

    Raises:
        BadInput: `from_columns` rejects the words, two rows have the same item, or a column to add already exists.
    """
    locate = locate or (lambda row: f'{name}, row {row + 1:,}')
    if names.item == COLUMN_NAMES.item and names.item[0] not in columns and sentence in columns:
        columns = {names.item[0]: range(1, len(columns[sentence]) + 1), **columns}
    _check_columns(columns, name, [*(('item', column) for column in names.item), ('sentence', sentence)], locate)
    for role, column in (('zone', names.zone), ('word', names.word)):
        allowed = f'already exists in {name}; choose another name for the {role} column'
        require(column not in columns, f'{role} column', column, allowed)
    repeated = next((key for key, n in collections.Counter(_item_keys(columns, names)).items() if n > 1), None)
    shown = ', '.join(map(str, repeated or ()))
    require(repeated is None, ', '.join(names.item), shown, f'{name} has two rows with this item; {_ADD_COLUMNS}')
    words = [text.split() for text in columns[sentence]]
    rows = [row for row, item in enumerate(words) for _ in item]
    cut = {column: [cells[row] for row in rows] for column, cells in columns.items()}
    cut[names.zone] = [zone for item in words for zone in range(1, len(item) + 1)]
    cut[names.word] = [word for item in words for word in item]
    return from_columns(cut, name, names, lambda row: locate(rows[row])), rows


def _find_sentences(columns: Columns) -> str:
    """Returns the name of the first column in which most cells have several words, or '' if there is none."""
    for name, cells in columns.items():
        if 2 * sum(isinstance(cell, str) and len(cell.split()) > 1 for cell in cells) > len(cells):
            return name
    return ''


def _check_columns(columns: Columns, name: str, roles: Sequence[tuple[str, str]], locate: Locate) -> None:
    """Raises BadInput unless the columns exist, differ and have no empty cells, and the last contains valid text."""
    for role, column in roles:
        use = '; it must contain the position of each word in its item' if role == 'zone' else ''
        advice = f'{use}; choose another column with --{role}=COLUMN'
        tables.check_has(columns, name, f'{role} column', column, advice)
    names = [column for _, column in roles]
    allowed = f'the columns for {", ".join(role for role, _ in roles)} must differ'
    require(len(set(names)) == len(names), 'columns', tuple(names), allowed)
    if not len(columns[names[0]]):
        raise BadInput(name, 'has no rows')
    for role, column in roles:
        for row, cell in enumerate(columns[column]):
            is_empty = tables.is_missing(cell) or not str(cell).strip()
            fault = 'is empty' if is_empty else find_fault(cell) if column == names[-1] else ''
            if role == 'word' and not fault and len(cell) > MAX_CHARACTERS:
                fault = f'the word has {len(cell):,} characters, but at most {MAX_CHARACTERS} are allowed'
            if role == 'item' and not isinstance(cell, Hashable):
                fault = f'has type {type(cell).__name__}, which cannot be used to identify items'
            if fault:
                raise BadInput(f'{locate(row)}, column {column!r}', fault)


def _item_keys(columns: Columns, names: ColumnNames) -> list[tuple[Any, ...]]:
    """Returns the item key of each row."""
    return list(zip(*(columns[column] for column in names.item)))


def _find_items(columns: Columns, names: ColumnNames, locate: Locate) -> list[range]:
    """Returns the rows of each item. Raises BadInput unless they are adjacent and their zones increase."""
    keys, zones = _item_keys(columns, names), columns[names.zone]
    starts: dict[tuple[Any, ...], int] = {}
    for row, key in enumerate(keys):
        fault = ''
        if row == 0 or key != keys[row - 1]:
            if (first := starts.setdefault(key, row)) != row:
                fault = f'item {", ".join(map(str, key))!r} started in row {first + 1:,}, but its rows are not adjacent'
        elif not _to_number(zones[row - 1], -math.inf) < _to_number(zones[row], math.inf):
            fault = f'zone {zones[row]!r} follows zone {zones[row - 1]!r} in the same item'
        if fault:
            raise BadInput(locate(row), f'{fault}; sort the table by item and zone, or {_ADD_COLUMNS}')
    return list(map(range, starts.values(), [*list(starts.values())[1:], len(keys)]))


def _to_number(zone: Any, default: float) -> float:
    """Converts a zone, such as 1.5 or 1,5, to a number. Returns the default for names without an order, such as 1_10.

    Zones such as 1,000 have no order either, because the comma may be a decimal comma or a thousands separator.
    """
    try:
        return default if '_' in str(zone) else float(_DECIMAL_COMMA.sub(r'\1.\2', str(zone).strip()))
    except ValueError:
        return default
