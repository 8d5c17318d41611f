"""Words in reading order with their reading times, and the predictors of these.

Dims: W words, B columns of the baseline, A columns of a model.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nplm_jax.apps.psycholinguistics import gains, tables
from nplm_jax.apps.psycholinguistics import stimuli as stimuli_lib
from nplm_jax.apps.psycholinguistics.stimuli import ColumnNames, Stimuli
from nplm_jax.utils.errors import BadInput, require

_MISSING = ('', 'na', 'nan', 'none', 'null')


class WordTable(NamedTuple):
    """A table with one row a word.

    Attributes:
        stimuli: The words.
        times_W: The reading times, or their logarithms; nan where a word has none.
        unit_W: The number of what the first of the columns of items says.
        position_W: The place of each word in its item, from 1.
        log_frequency_W: The log frequencies of the table; None without a column of them.
    """

    stimuli: Stimuli
    times_W: np.ndarray
    unit_W: np.ndarray
    position_W: np.ndarray
    log_frequency_W: np.ndarray | None

    @property
    def words(self) -> list[str]:
        """The words without blanks around them."""
        return [word.strip() for word in self.stimuli.words]

    @property
    def item_W(self) -> np.ndarray:
        """The number of the item of each word, from 0."""
        return self.stimuli.item_W


class Predictors(NamedTuple):
    """What predicts the reading times of the words that are analysed.

    Attributes:
        is_kept_W: Which words are analysed.
        baseline_WxB: The columns of the baseline, of the analysed words alone.
        added_WxA: By model its surprisals of the word and of the words before, bits, of the analysed words alone.
    """

    is_kept_W: np.ndarray
    baseline_WxB: np.ndarray
    added_WxA: dict[str, np.ndarray]


def read(table: str, names: ColumnNames, time: str, scale: str, frequency: str = '') -> WordTable:
    """Reads a table of words and reading times.

    Args:
        table: The file, the value of --table.
        names: The names of the columns of items, zones and words.
        time: The column of reading times; an empty cell or NA is a missing one.
        scale: `log` for logarithms of the times, `ms` for the times.
        frequency: The column of log frequencies; empty for none.

    Raises:
        BadInput: `stimuli.read` refuses the file, a column is missing, there is no reading time, or a cell is no
            number; the message names file, row and column.
    """
    stimuli = stimuli_lib.read(table, names)
    times_W = _numbers(stimuli, table, '--time', time)
    require(not np.isnan(times_W).all(), '--time', time, f'{table} has no reading time in this column')
    if scale == 'log':
        if (times_W <= 0).any():
            row = int(np.argmax(times_W <= 0))
            problem = f'{times_W[row]:g} has no logarithm; see --scale=ms'
            raise BadInput(f'{stimuli.place(row)}, column {time!r}', problem)
        times_W = np.log(times_W)
    units: dict[Any, int] = {}
    unit_W = np.array([units.setdefault(cell, len(units)) for cell in stimuli.columns[names.item[0]]])
    position_W = np.concatenate([np.arange(len(rows)) + 1 for rows in stimuli.items])
    log_frequency_W = _numbers(stimuli, table, '--frequency', frequency) if frequency else None
    return WordTable(stimuli, times_W, unit_W, position_W, log_frequency_W)


def _numbers(stimuli: Stimuli, name: str, flag: str, column: str) -> np.ndarray:
    """Returns the numbers of a column, nan for missing ones."""
    tables.check_has(stimuli.columns, name, flag, column, f'; {flag}=COLUMN names another')
    numbers = []
    for row, cell in enumerate(stimuli.columns[column]):
        is_missing = cell is None or str(cell).strip().lower() in _MISSING
        try:
            numbers.append(math.nan if is_missing else float(cell))
        except (TypeError, ValueError, OverflowError):
            numbers.append(math.inf)
        if math.isinf(numbers[-1]):
            raise BadInput(f'{stimuli.place(row)}, column {column!r}', f'{cell!r} is not a finite number')
    return np.array(numbers)


def make_predictors(table: WordTable, measured: Mapping[str, Sequence[Any]], models: Sequence[str]) -> Predictors:
    """Returns the predictors of the words that are analysed: those that `gains.choose_words` keeps and that have all.

    Args:
        table: The words.
        measured: The columns that `measurement.measure` added to them.
        models: The names of the models.

    Raises:
        BadInput: There is no log frequency.
    """
    log_frequency_W = table.log_frequency_W
    if log_frequency_W is None:
        log_frequency_W = np.array(measured['log_frequency'], float)
    allowed = 'expected the column of log frequencies: pieces, characters, bytes and ARPA files have no counts of words'
    require(not np.isnan(log_frequency_W).all(), '--frequency', '', allowed)
    of_word = table.words, table.item_W, table.position_W
    is_kept_W = gains.choose_words(*of_word, np.array(measured['in_vocabulary'], bool)) & np.isfinite(table.times_W)
    with np.errstate(invalid='ignore'):
        baseline_WxB = gains.make_baseline(*of_word, np.array(measured['length'], float), log_frequency_W)
    added = {
        name: gains.with_words_before(np.array(measured[f'surprisal_{name}'], float), table.item_W) for name in models
    }
    for columns in (baseline_WxB, *added.values()):
        is_kept_W = is_kept_W & np.isfinite(columns).all(axis=1)
    return Predictors(is_kept_W, baseline_WxB[is_kept_W], {name: cells[is_kept_W] for name, cells in added.items()})


def check_sizes(table: WordTable, predictors: Predictors, num_folds: int) -> None:
    """Raises BadInput unless the analysed words fill the folds, and are enough for the regression of each."""
    is_kept_W = predictors.is_kept_W
    unit_W, item_W = table.unit_W[is_kept_W], table.item_W[is_kept_W]
    num_words, units = len(unit_W), np.unique(unit_W, return_inverse=True)
    check_folds(num_folds, len(units[0]), 'with words that are analysed')
    coefficients = predictors.baseline_WxB.shape[1] + gains.NUM_BEFORE + 1
    fitted = num_words - np.bincount(units[1] % num_folds).max() - len(np.unique(item_W))
    allowed = f'too few: the regression has {coefficients} coefficients, and a mean of each item'
    require(fitted > coefficients, 'words that are analysed', num_words, allowed)


def check_folds(num_folds: int, num_units: int, which: str = '') -> None:
    """Raises BadInput unless each fold has an item."""
    require(num_units > 1, 'items', num_units, f'expected 2 or more items {which}'.rstrip())
    allowed = f'must be from 2 to {num_units:,}, the number of items {which}'.rstrip()
    require(2 <= num_folds <= num_units, '--folds', num_folds, allowed)
