"""Measures how much a model's surprisals improve the prediction of reading times.

    nplm reading-times runs/brown-mlp9 runs/brown-kneser_ney_5 --table=times.csv --time=rt --figure=gains.png
    nplm reading-times runs/brown-mlp9 --table=times.tsv --item=item,condition --output=predictors.csv

The table is a .csv, .tsv, .parquet or .jsonl file with one row per word and columns of items, zones, words and mean
reading times. The rows of an item must be adjacent and in reading order. An empty cell or NA is a missing time.

The baseline is a linear regression of the (log) reading time on the length, the log frequency and their product for the
word and the two preceding words, on punctuation, and on the positions in the sentence and in the item. A second
regression adds the surprisals of the word and the two preceding words. Times and predictors are centred by item. Both
regressions are cross-validated over items. The gain is the increase in held-out log-likelihood per word, in
thousandths of a nat, with a 95% bootstrap interval over items. The analysis excludes words without a time, the first
three words of each item, the first and last word of each sentence, and words that are unknown or follow an unknown
word.

With --item=item,condition, each condition is a separate text. The conditions of an item stay in the same fold and are
resampled together. With --item=item,reader, the table has one row per word and reader, and times are not averaged over
readers. --output writes the table with the lengths, log frequencies, surprisals and positions, and with the column
`analysed`, for example for an analysis in R (see docs/howto/reading_times.md).
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nplm_jax.apps.psycholinguistics import figures, gains, measurement, tables
from nplm_jax.apps.psycholinguistics import stimuli as stimuli_lib
from nplm_jax.apps.psycholinguistics.stimuli import ColumnNames, Stimuli
from nplm_jax.cli.parser import Parser
from nplm_jax.reporting.text import markdown_table, to_json
from nplm_jax.runs.command_models import check_models, load_models
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand

_MISSING = ('', 'na', 'nan', 'none', 'null')
_ADDED = ('position', 'place_in_sentence', 'analysed')  # columns of the output besides those from `measure`


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.add_runs()
    table = '.csv, .tsv, .parquet or .jsonl file with one row per word; required'
    parser.add_argument('--table', required=True, metavar='FILE', help=table)
    parser.add_argument(
        '--time', default='time', metavar='COLUMN', help='column that contains the reading times in milliseconds'
    )
    scale = 'predicted quantity: the logarithm of the reading time (log) or the reading time in milliseconds (ms)'
    parser.add_argument('--scale', default='log', choices=('log', 'ms'), help=scale)
    parser.add_columns()
    frequency = 'column that contains the log frequencies; default: log frequencies from the counts of the vocabulary'
    parser.add_argument('--frequency', default='', metavar='COLUMN', help=frequency)
    parser.add_context()
    parser.add_argument(
        '--folds', type=int, default=10, metavar='K', help='number of cross-validation folds over items'
    )
    parser.add_output('.csv, .tsv or .parquet file to write the predictors to; default: no file')
    parser.add_figure('PNG file to write a figure of the gains with their intervals to; default: no figure')
    parser.add_json()


def main(flags: argparse.Namespace) -> None:
    """Prints the gains of the models, draws the figure and writes the predictors."""
    runs = flags.runs
    check_models(runs)
    output = tables.find_output(flags.output)
    names = ColumnNames(tuple(flags.item.split(',')), flags.zone, flags.word)
    table = read(flags.table, names, flags.time, flags.scale, flags.frequency)
    check_folds(flags.folds, int(table.unit_W.max()) + 1, 'of the table')
    tables.check_new(table.stimuli.columns, _ADDED)

    models = load_models(runs)
    models.warn_unspaced(table.stimuli.words_by_item, table.stimuli.names.word)
    options = measurement.Options(context=flags.context, spillover=gains.NUM_BEFORE)
    frequency_W = table.log_frequency_W
    measured = measurement.measure(models.by_name(), table.stimuli, options, log_frequency_W=frequency_W)
    predictors = make_predictors(table, measured, models.names)
    results = _analyse(table, predictors, measured, flags)
    models.warn_unknown(' '.join(measured['tokens']).split(' '))
    if output:
        positions_W, _, _ = gains.sentence_positions(table.words, table.item_W)
        added = table.position_W, positions_W, predictors.is_kept_W
        columns = {**table.stimuli.columns, **measured, **dict(zip(_ADDED, (column.tolist() for column in added)))}
        tables.write(output, columns, own_columns=table.stimuli.columns)
    if flags.figure:
        figures.draw_gains(results['models'], expand('--figure', flags.figure))
    print(to_json(results) if flags.json else _describe(results))


class WordTable(NamedTuple):
    """A table of reading times with one row per word.

    Attributes:
        stimuli: The table.
        words: The words without surrounding whitespace.
        item_W: The item index of each word.
        times_W: The reading times, or their logarithms. NaN if a time is missing.
        unit_W: The index of the cross-validation unit of each word, given by the first item column.
        position_W: The position of each word in its item, from 1.
        log_frequency_W: The log frequencies from the table. None if the table contains none.
    """

    stimuli: Stimuli
    words: list[str]
    item_W: np.ndarray
    times_W: np.ndarray
    unit_W: np.ndarray
    position_W: np.ndarray
    log_frequency_W: np.ndarray | None


class Predictors(NamedTuple):
    """The predictors of reading times for the analysed words.

    Attributes:
        is_kept_W: The mask of the analysed words.
        baseline_WxB: The baseline predictors of the analysed words.
        added_WxA: The surprisals of each analysed word and of the words before it, in bits, by model name.
    """

    is_kept_W: np.ndarray
    baseline_WxB: np.ndarray
    added_WxA: dict[str, np.ndarray]


def read(table: str, names: ColumnNames, time: str, scale: str, frequency: str = '') -> WordTable:
    """Reads a table of words and reading times.

    Args:
        table: The path of the file, as given by --table.
        names: The names of the item, zone and word columns.
        time: The column of reading times. An empty cell or NA stands for a missing time.
        scale: `log` to return the logarithms of the times, or `ms` to return the times.
        frequency: The column of log frequencies, or '' for none.

    Raises:
        BadInput: `stimuli.read` rejects the file, a column is missing, there are no reading times, or a cell does not
            contain a number. The key names the file, row and column.
    """
    stimuli = stimuli_lib.read(table, names)
    times_W = _numbers(stimuli, table, '--time', time)
    require(not np.isnan(times_W).all(), '--time', time, f'must contain reading times in {table}')
    if scale == 'log':
        if (times_W <= 0).any():
            row = int(np.argmax(times_W <= 0))
            problem = f'must be positive with --scale=log, not {times_W[row]:g}; use --scale=ms'
            raise BadInput(f'{stimuli.locate(row)}, column {time!r}', problem)
        times_W = np.log(times_W)
    units: dict[Any, int] = {}
    unit_W = np.array([units.setdefault(cell, len(units)) for cell in stimuli.columns[names.item[0]]])
    position_W = np.concatenate([np.arange(len(rows)) + 1 for rows in stimuli.items])
    log_frequency_W = _numbers(stimuli, table, '--frequency', frequency) if frequency else None
    words = [word.strip() for word in stimuli.words]
    return WordTable(stimuli, words, stimuli.item_W, times_W, unit_W, position_W, log_frequency_W)


def _numbers(stimuli: Stimuli, name: str, flag: str, column: str) -> np.ndarray:
    """Returns a column as numbers. Missing values become NaN."""
    tables.check_has(stimuli.columns, name, flag, column, f'; choose another column with {flag}=COLUMN')
    numbers = []
    for row, cell in enumerate(stimuli.columns[column]):
        is_missing = cell is None or str(cell).strip().lower() in _MISSING
        try:
            number = math.nan if is_missing else float(cell)
        except (TypeError, ValueError, OverflowError):
            number = math.inf
        numbers.append(math.inf if '_' in str(cell) else number)  # reject 1_000, which Python reads as a number
        if math.isinf(numbers[-1]):
            raise BadInput(f'{stimuli.locate(row)}, column {column!r}', f'{cell!r} is not a finite number')
    return np.array(numbers)


def make_predictors(table: WordTable, measured: Mapping[str, Sequence[Any]], models: Sequence[str]) -> Predictors:
    """Returns the predictors of the words that `gains.choose_words` selects and that have no missing values.

    Args:
        table: The words.
        measured: The columns from `measurement.measure`.
        models: The names of the models.

    Raises:
        BadInput: There are no log frequencies.
    """
    log_frequency_W = np.array(measured['log_frequency'], float)
    allowed = 'is required for ARPA files and models whose tokens are not words, because they have no word counts'
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


def check_sizes(item_W: np.ndarray, unit_W: np.ndarray, coefficients: int, num_folds: int) -> None:
    """Raises BadInput unless each fold has analysed words and the remaining folds have enough for a regression."""
    units, number_W = np.unique(unit_W, return_inverse=True)
    check_folds(num_folds, len(units), 'with analysed words')
    fitted = len(unit_W) - np.bincount(number_W % num_folds).max() - len(np.unique(item_W))
    allowed = f'are too few for a regression with {coefficients} coefficients and one mean per item'
    require(fitted > coefficients, 'analysed words', len(unit_W), allowed)


def check_folds(num_folds: int, num_units: int, which: str) -> None:
    """Raises BadInput unless there are at least two items, two folds, and one item per fold."""
    require(num_units > 1, 'items', num_units, f'cross-validation requires at least two items {which}')
    allowed = f'must be between 2 and {num_units:,}, the number of items {which}'
    require(2 <= num_folds <= num_units, '--folds', num_folds, allowed)


def _analyse(
    table: WordTable, predictors: Predictors, measured: dict[str, list[Any]], flags: argparse.Namespace
) -> dict[str, Any]:
    """Returns the results that --json prints."""
    of_word = table.times_W, table.item_W, table.unit_W
    times_W, item_W, unit_W = (values_W[predictors.is_kept_W] for values_W in of_word)
    check_sizes(item_W, unit_W, predictors.baseline_WxB.shape[1] + gains.NUM_BEFORE + 1, flags.folds)
    allowed = 'must vary among the analysed words of at least one item'
    require(not np.allclose(gains.centre(times_W, item_W), 0), '--time', flags.time, allowed)
    known_W = np.array(measured['in_vocabulary']) & (table.position_W > 1)
    results: dict[str, Any] = {
        'words': len(table.words),
        'analysed': len(times_W),
        'items': len(np.unique(unit_W)),
        'folds': flags.folds,
        'scale': flags.scale,
        'baseline_r2': gains.explained_variance(times_W, item_W, predictors.baseline_WxB),
        'models': {},
    }
    for name, added_WxA in predictors.added_WxA.items():
        arguments = times_W, item_W, predictors.baseline_WxB, added_WxA
        gain = gains.gain(*arguments, unit_W, flags.folds)
        low, high = gains.gain_interval(gain.sums_S, gain.counts_S)
        bits_W = np.array(measured[f'surprisal_{name}'])[known_W]
        results['models'][name] = {
            'perplexity': math.exp(bits_W.mean() * math.log(2)),
            'gain': gain.per_word,
            'interval': [low, high],
            'slopes': gains.slopes(*arguments),
            'sums': gain.sums_S.tolist(),
        }
        results['counts'] = gain.counts_S.tolist()
    return results


def _describe(results: dict[str, Any]) -> str:
    """Formats the results as a Markdown table with notes."""
    unit = 'log ms' if results['scale'] == 'log' else 'ms'
    header = ['run', 'perplexity', 'gain', '95%', f'slope, {unit}/bit', 'word before', 'two before']
    rows = []
    for name, row in results['models'].items():
        low, high = (f'{1000 * end:.1f}' for end in row['interval'])
        slopes = [f'{slope:.3g}' for slope in row['slopes']]
        rows.append([name, f'{row["perplexity"]:,.1f}', f'{1000 * row["gain"]:.1f}', f'{low} to {high}', *slopes])
    counts = f'{results["analysed"]:,} of {results["words"]:,} words in {results["items"]:,} items are analysed'
    explained = f'the baseline explains {results["baseline_r2"]:.0%} of the variance within items'
    note = 'gain: thousandths of a nat per word, on items held out of the fit'
    return f'{counts}; {explained}\n{markdown_table(header, rows)}\n{note} ({results["folds"]} folds)'
