"""Computes the surprisal, entropy (both in bits) and rank of the words in an experiment.

    nplm surprisal runs/brown-mlp9 runs/brown-kneser_ney_5 --table=stimuli.tsv --spillover=2 --output=surprisal.tsv
    nplm surprisal runs/brown-mlp9 --table=items.csv --sentence=sentence --item=item,condition --figure=surprisal.png
    nplm surprisal runs/brown-mlp9 < sentences.txt

Reads a table with one row per word and the columns item, zone and word. The rows of an item must be adjacent and
ordered by zone. With --sentence, the table has one row per item. A table is a .tsv, .csv (separated by commas or
semicolons), .parquet or .jsonl file. Without --table, reads items from stdin: one item per line or, if the text has
empty lines, one item per paragraph. Items are scored independently. If the table has one row per word and reader, use
--item=item,reader.

Writes the table with additional columns: the word's tokens, length and log frequency, whether the word is in the
vocabulary, and how it was scored. Each run adds the columns surprisal_RUN (the sum over the word's tokens), entropy_RUN
(of the distribution that predicts the word), entropy_reduction_RUN and rank_RUN. docs/reference/surprisal.md defines
the columns. --long writes one row per word and run instead, with the columns model, surprisal, entropy,
entropy_reduction and rank. --figure=FILE.png draws the surprisal of each word, with one panel per item.
"""

import argparse
import dataclasses
import sys

from nplm_jax.apps.psycholinguistics import figures, measurement, stimuli, tables
from nplm_jax.apps.psycholinguistics.stimuli import Stimuli
from nplm_jax.cli import scheduler
from nplm_jax.cli.parser import Parser
from nplm_jax.cli.score import read_stdin
from nplm_jax.data import unspaced_scripts
from nplm_jax.runs.command_models import check_models, load_models
from nplm_jax.utils.io import expand


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.add_runs()
    helps = {
        'weights': 'weights of the runs in a mixture, such as 0.7,0.3, or a file written by `nplm mix --output=FILE`; '
        'the mixture is measured as an additional model named `mixture`; default: no mixture',
        'punctuation': 'whether surprisal and length include the punctuation of a word (attached) or not (word)',
        'sentence': 'column that contains the sentences of a table with one row per item; they are split at '
        'whitespace, and the columns zone and word are added; default: the table has one row per word',
        'figure': 'PNG file to write a figure of the surprisals to; default: no figure',
        'tokens': 'whether to separate punctuation from words (words) or not (whitespace); default: as in the '
        'corpus of the runs, with punctuation separated if the vocabulary requires it',
        'word_probability': 'if the tokens are not words: the probability of the whole word (corrected) or '
        'the probability of its tokens, including the preceding space (sum), as in minicons',
        'hyphens': 'whether to split an unknown word at its hyphens if all parts are known (split) or not (keep)',
        'long': 'write one row per word and run, with the name of the run in the column `model`',
        'open': 'score unknown words with the spelling model trained by `nplm spell RUN`',
    }
    parser.add_argument(
        '--table', default='', metavar='FILE', help='file with the table of words; default: read text from stdin'
    )
    parser.add_columns()
    parser.add_owned('table', '--sentence', default='', metavar='COLUMN', help=helps['sentence'])
    parser.add_output('.tsv, .csv or .parquet file to write; default: TSV on stdout')
    for key, values in measurement.CHOICES.items():
        parser.add_argument(f'--{key}', default=getattr(measurement.Options, key), choices=values, help=helps[key])
    parser.add_context()
    parser.add_argument(
        '--spillover',
        type=int,
        default=0,
        metavar='K',
        help='also add columns with the surprisal and other predictors of each of the K preceding words',
    )
    parser.add_switch('--long', helps['long'])
    parser.add_switch('--open', helps['open'])
    parser.add_argument('--weights', default='', help=helps['weights'])
    parser.add_scheduler()
    parser.add_figure(helps['figure'])


def main(flags: argparse.Namespace) -> None:
    """Writes the table and draws the figure."""
    check_models(flags.runs)  # report errors before waiting for stdin
    output = tables.find_output(flags.output)
    stimuli, rule = _read_stimuli(flags)
    if flags.long:
        tables.check_new(stimuli.columns, ('model', *map(''.join, measurement.model_columns(flags.spillover))))
    notes = [f'items: {len(stimuli.items):,}{rule}, words: {len(stimuli.words):,}']

    options = measurement.Options(
        flags.punctuation, flags.context, flags.tokens, flags.hyphens, flags.spillover, flags.word_probability
    )
    models = load_models(flags.runs, flags.weights)
    if not flags.open:
        unspaced_scripts.check_known(models.vocabulary, list(map(' '.join, stimuli.words_by_item)), 'words')
    notes.append(unspaced_scripts.describe(models.vocabulary, stimuli.words_by_item))
    spelling = models.with_spelling().spelling if flags.open else None
    models = models.on_cluster() if flags.scheduler else models
    with scheduler.use(flags.scheduler):
        named = models.by_name()
        if flags.weights:
            named['mixture'] = dataclasses.replace(named[models.names[0]], model=models.mixture)
        columns = measurement.measure(named, stimuli, options, spelling)
    if not spelling:
        read = filter(None, [columns['starts_after'][0] if flags.context else '', *columns['tokens']])
        models.warn_unknown(' '.join(read).split(' '))  # words in an ARPA file may contain other whitespace
    table: tables.Columns = {**stimuli.columns, **columns}
    table = measurement.to_long(table, list(named), flags.spillover) if flags.long else table
    if flags.figure:
        surprisals = {name: columns[f'surprisal_{name}'] for name in named}
        path = expand('--figure', flags.figure)
        notes.append(figures.draw_surprisal(stimuli, surprisals, columns['in_vocabulary'], path))
    sys.stderr.writelines(f'{note}\n' for note in notes if note)
    if output:
        tables.write(output, table, own_columns=stimuli.columns)
    else:
        sys.stdout.write(tables.to_text(table, own_columns=stimuli.columns))


def _read_stimuli(flags: argparse.Namespace) -> tuple[Stimuli, str]:
    """Returns the stimuli and a note on how stdin was divided into items. For a table, the note is ''."""
    if flags.table:
        names = stimuli.ColumnNames(tuple(flags.item.split(',')), flags.zone, flags.word)
        return stimuli.read(flags.table, names, flags.sentence, sentence_flag='--sentence='), ''
    text = read_stdin()
    rule = 'separated by blank lines' if stimuli.has_blank_lines(text) else 'one per line'
    return stimuli.from_text(text, 'stdin'), f' ({rule})'
