"""Measures how much a model's surprisals improve the prediction of reading times.

    nplm reading-times runs/brown-mlp9 runs/brown-kneser_ney_5 --table=times.csv --time=rt --figure=gains.png
    nplm reading-times runs/brown-mlp9 --table=times.tsv --item=item,condition --output=predictors.csv

The table is .csv, .tsv, .parquet or .jsonl with one row per word: its item, zone, word and mean reading time. The rows
of an item are adjacent and in reading order. An empty time or NA is missing.

The baseline is a linear regression of the (log) reading time on the length, the log frequency and their product for the
word and the two preceding words, on punctuation, and on the positions in the sentence and in the item. A second
regression adds the surprisals of the word and of the two preceding words. Both are cross-validated over items, with the
mean of each item subtracted. The gain is their difference in log-likelihood per word, in thousandths of a nat, with a
95% bootstrap interval over items. The analysis excludes words without a time, the first three words of each item, the
first and last word of each sentence, and words that are unknown or follow an unknown word.

With --item=item,condition, each condition is a separate text, and the conditions of an item are in the same fold and
resampled together. With --item=item,reader, the table has one row per word and reader and is not averaged. --output
has the rows of the table with all predictors and the column `analysed`, for R. docs/howto/reading_times.md has an
example.
"""

import argparse
import math
from typing import Any

import numpy as np

from nplm_jax.apps.psycholinguistics import figures, gains, measurement, tables, word_table
from nplm_jax.apps.psycholinguistics.stimuli import ColumnNames
from nplm_jax.apps.psycholinguistics.word_table import Predictors, WordTable
from nplm_jax.cli.parser import Parser
from nplm_jax.reporting.text import markdown_table, to_json
from nplm_jax.runs.command_models import check_models, load_models
from nplm_jax.utils.io import expand


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.add_runs()
    parser.add_argument('--table', required=True, help='.csv, .tsv, .parquet or .jsonl with one row per word; required')
    parser.add_argument('--time', default='time', metavar='COLUMN', help='column of reading times')
    scale = 'whether to predict the logarithm of the time, or the time in milliseconds'
    parser.add_argument('--scale', default='log', choices=('log', 'ms'), help=scale)
    parser.add_columns()
    frequency = 'column of log frequencies; default: frequencies in the training text'
    parser.add_argument('--frequency', default='', metavar='COLUMN', help=frequency)
    parser.add_context()
    parser.add_argument('--folds', type=int, default=10, metavar='K', help='cross-validation folds over items')
    parser.add_output('.csv, .tsv or .parquet to write the predictors to; default: none')
    parser.add_figure('figure of the gains with their intervals; default: no figure')
    parser.add_json()


def main(flags: argparse.Namespace) -> None:
    """Prints the gains of the models, draws the figure and writes the predictors."""
    runs = flags.runs
    check_models(runs)
    output = tables.find_output(flags.output)
    names = ColumnNames(tuple(flags.item.split(',')), flags.zone, flags.word)
    table = word_table.read(flags.table, names, flags.time, flags.scale, flags.frequency)
    word_table.check_folds(flags.folds, int(table.unit_W.max()) + 1, 'of the table')
    tables.check_new(table.stimuli.columns, _ADDED)

    models = load_models(runs)
    models.warn_unspaced(table.stimuli.words_by_item, table.stimuli.names.word)
    options = measurement.Options(context=flags.context, spillover=gains.NUM_BEFORE)
    measured = measurement.measure(models.by_name(), table.stimuli, options)
    predictors = word_table.make_predictors(table, measured, models.names)
    word_table.check_sizes(table, predictors, flags.folds)
    models.warn_unknown(' '.join(measured['tokens']).split())
    results = _analyse(table, predictors, measured, flags)
    if output:
        positions_W, _, _ = gains.sentence_positions(table.words, table.item_W)
        added = table.position_W, positions_W, predictors.is_kept_W
        columns = {**table.stimuli.columns, **measured, **dict(zip(_ADDED, (column.tolist() for column in added)))}
        tables.write(output, columns, own_columns=table.stimuli.columns)
    if flags.figure:
        figures.draw_gains(results['models'], expand('--figure', flags.figure))
    print(to_json(results) if flags.json else _describe(results))


_ADDED = ('position', 'place_in_sentence', 'analysed')  # columns of the output besides those from `measure`


def _analyse(
    table: WordTable, predictors: Predictors, measured: dict[str, list[Any]], flags: argparse.Namespace
) -> dict[str, Any]:
    """Returns the results as printed by --json."""
    is_kept_W = predictors.is_kept_W
    times_W, item_W, unit_W = table.times_W[is_kept_W], table.item_W[is_kept_W], table.unit_W[is_kept_W]
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
        low, high = gains.interval(gains.mean_gain(gain.sums_S, gain.counts_S), len(gain.counts_S))
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
