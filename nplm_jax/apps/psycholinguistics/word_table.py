"""Reading times of words in reading order, and their predictors.

Dims: W words, B baseline predictors, A predictors of a model.
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
    """A table of reading times with one row per word.

    Attributes:
        stimuli: The words.
        times_W: The reading times, or their logarithms; nan if missing.
        unit_W: The index of the cross-validation unit of each word, from the first column of items.
        position_W: The position of each word in its item, from 1.
        log_frequency_W: The log frequencies in the table; None if there is no column of them.
    """

    stimuli: Stimuli
    times_W: np.ndarray
    unit_W: np.ndarray
    position_W: np.ndarray
    log_frequency_W: np.ndarray | None

    @property
    def words(self) -> list[str]:
        """The words without surrounding whitespace."""
        return [word.strip() for word in self.stimuli.words]

    @property
    def item_W(self) -> np.ndarray:
        """The index of the item of each word, W."""
        return self.stimuli.item_W


class Predictors(NamedTuple):
    """The predictors of the reading times of the analysed words.

    Attributes:
        is_kept_W: The mask of the analysed words among all words.
        baseline_WxB: The baseline predictors of the analysed words.
        added_WxA: Model name -> surprisals of each analysed word and its preceding words, bits.
    """

    is_kept_W: np.ndarray
    baseline_WxB: np.ndarray
    added_WxA: dict[str, np.ndarray]


def read(table: str, names: ColumnNames, time: str, scale: str, frequency: str = '') -> WordTable:
    """Reads a table of words and reading times.

    Args:
        table: The file, the value of --table.
        names: The names of the columns of items, zones and words.
        time: The column of reading times; an empty cell or NA is missing.
        scale: `log` for the logarithms of the times, `ms` for the times.
        frequency: The column of log frequencies; empty for none.

    Raises:
        BadInput: `stimuli.read` rejects the file, a column is missing, there are no reading times, or a cell is not a
            number. The key names the file, row and column.
    """
    stimuli = stimuli_lib.read(table, names)
    times_W = _numbers(stimuli, table, '--time', time)
    require(not np.isnan(times_W).all(), '--time', time, f'has no reading times in {table}')
    if scale == 'log':
        if (times_W <= 0).any():
            row = int(np.argmax(times_W <= 0))
            problem = f'{times_W[row]:g} has no logarithm; use --scale=ms'
            raise BadInput(f'{stimuli.locate(row)}, column {time!r}', problem)
        times_W = np.log(times_W)
    units: dict[Any, int] = {}
    unit_W = np.array([units.setdefault(cell, len(units)) for cell in stimuli.columns[names.item[0]]])
    position_W = np.concatenate([np.arange(len(rows)) + 1 for rows in stimuli.items])
    log_frequency_W = _numbers(stimuli, table, '--frequency', frequency) if frequency else None
    return WordTable(stimuli, times_W, unit_W, position_W, log_frequency_W)


def _numbers(stimuli: Stimuli, name: str, flag: str, column: str) -> np.ndarray:
    """Returns a column as numbers; nan for missing values."""
    tables.check_has(stimuli.columns, name, flag, column, f'; {flag}=COLUMN names another')
    numbers = []
    for row, cell in enumerate(stimuli.columns[column]):
        is_missing = cell is None or str(cell).strip().lower() in _MISSING
        try:
            numbers.append(math.nan if is_missing else float(cell))
        except (TypeError, ValueError, OverflowError):
            numbers.append(math.inf)
        if math.isinf(numbers[-1]):
            raise BadInput(f'{stimuli.locate(row)}, column {column!r}', f'{cell!r} is not a finite number')
    return np.array(numbers)


def make_predictors(table: WordTable, measured: Mapping[str, Sequence[Any]], models: Sequence[str]) -> Predictors:
    """Returns the predictors of the words selected by `gains.choose_words` that have no missing values.

    Args:
        table: The words.
        measured: The columns from `measurement.measure`.
        models: The names of the models.

    Raises:
        BadInput: There are no log frequencies.
    """
    log_frequency_W = table.log_frequency_W
    if log_frequency_W is None:
        log_frequency_W = np.array(measured['log_frequency'], float)
    allowed = 'required, because models of subwords, characters or bytes and ARPA files have no word counts'
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
    """Raises BadInput unless each fold has analysed words, and its regression has enough of them."""
    is_kept_W = predictors.is_kept_W
    unit_W, item_W = table.unit_W[is_kept_W], table.item_W[is_kept_W]
    num_words, units = len(unit_W), np.unique(unit_W, return_inverse=True)
    check_folds(num_folds, len(units[0]), 'with analysed words')
    coefficients = predictors.baseline_WxB.shape[1] + gains.NUM_BEFORE + 1
    fitted = num_words - np.bincount(units[1] % num_folds).max() - len(np.unique(item_W))
    allowed = f'too few for a regression with {coefficients} coefficients and a mean per item'
    require(fitted > coefficients, 'analysed words', num_words, allowed)


def check_folds(num_folds: int, num_units: int, which: str = '') -> None:
    """Raises BadInput unless there are at least two items and each fold has one."""
    require(num_units > 1, 'items', num_units, f'expected 2 or more items {which}'.rstrip())
    allowed = f'must be from 2 to {num_units:,}, the number of items {which}'.rstrip()
    require(2 <= num_folds <= num_units, '--folds', num_folds, allowed)
