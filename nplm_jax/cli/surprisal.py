"""Surprisal in bits, entropy and rank of the words of an experiment, as a table.

    nplm surprisal runs/brown-mlp9 runs/brown-kneser_ney_5 --table=stimuli.tsv --spillover=2 --output=surprisal.tsv
    nplm surprisal runs/brown-mlp9 < text

Reads a table with the columns item, zone and word, one row a word, the rows of an item together and in the order of
their zones; .tsv, .csv or .parquet. Without --table it reads stdin: words between blanks, items between blank lines.
Each item is read anew, and does not depend on the others.

Writes the table with more columns: the tokens that the word was cut into, its length, log frequency, whether it is in
the vocabulary and how it was scored; for each run surprisal_RUN (the sum over the word's tokens), entropy_RUN (of the
next word, before this one), entropy_reduction_RUN and rank_RUN. docs/reference/surprisal.md says what each is.

--format=lm-zoo writes a row for each token instead, in the columns of `lm-zoo get-surprisals`: sentence_id, token_id,
token and surprisal, of one run or of a mixture. Then each line of stdin is an item.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nplm_jax.cli.parser import Parser
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand

if TYPE_CHECKING:
    import argparse

    from nplm_jax.cli.loaded_models import LoadedModels
    from nplm_jax.data.stimuli import Stimuli
    from nplm_jax.inference.surprisal import LoadedModel


def main(argv: Sequence[str]) -> None:
    """Writes the table."""
    flags = _parse_flags(argv)

    from nplm_jax.cli.loaded_models import check_finished, load_models
    from nplm_jax.data import stimulus_files
    from nplm_jax.runs import spelling

    check_finished(flags.workdir)  # before stdin is waited for
    output = expand('--output', flags.output) if flags.output else None
    if output:
        stimulus_files.check_suffix('--output', output)
    stimuli = _read_stimuli(flags)

    from nplm_jax.inference import surprisal

    options = surprisal.Options(flags.punctuation, flags.context, flags.tokens, flags.hyphens, flags.spillover)
    models = load_models(flags.workdir, flags.weights)
    spelled = spelling.load(*flags.workdir) if flags.open else None
    named = _name_models(models, bool(flags.weights))
    table: dict[str, Sequence[Any]]
    if flags.format == 'lm-zoo':
        table = {**surprisal.measure_tokens(list(named.values())[-1], stimuli, options, spelled)}
    else:
        columns = surprisal.measure(named, stimuli, options, spelled)
        if not spelled:
            models.warn_unknown([token for tokens in columns['tokens'] for token in tokens.split(' ')])
        table = {**stimuli.columns, **columns}
    if output:
        stimulus_files.write(output, table, text_columns=(stimuli.names.word, 'tokens', 'token'))
    else:
        sys.stdout.write(stimulus_files.to_text(table))


def _parse_flags(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser('surprisal', __doc__)
    parser.add_runs()
    helps = {
        'weights': 'measure the mixture of the runs too, as one more model named mixture: numbers such as 0.7,0.3, '
        'or a file of `nplm mix --output=FILE`; default: no mixture',
        'punctuation': 'whether the punctuation of a word counts in its surprisal and length, or the word alone',
        'context': 'what stands before an item, if the corpus has the marks: <text> <p>, <p> or nothing',
        'tokens': 'how a word is cut: at punctuation, or not at all; default: as the corpus of the runs was, '
        'punctuation split off where the vocabulary needs it',
        'format': 'a row for each word, or for each token as lm-zoo has it',
        'hyphens': 'split cuts an unknown word at its hyphens if all parts are known',
    }
    parser.add_argument('--table', default='', help='the words; default: the text on stdin')
    for column in ('item', 'zone', 'word'):
        parser.add_argument(f'--{column}', default=column, metavar='COLUMN', help=f'the column of {column}s')
    parser.add_argument('--output', default='', help='.tsv, .csv or .parquet; default: TSV on stdout')
    parser.add_argument('--punctuation', default='attached', choices=('attached', 'word'), help=helps['punctuation'])
    parser.add_argument('--context', default='text', choices=('text', 'paragraph', 'none'), help=helps['context'])
    parser.add_argument('--tokens', default='', choices=('words', 'whitespace'), help=helps['tokens'])
    parser.add_argument('--hyphens', default='keep', choices=('keep', 'split'), help=helps['hyphens'])
    parser.add_argument('--spillover', type=int, default=0, metavar='K', help='add columns of the K words before')
    parser.add_argument('--open', action='store_true', help='spell unknown words, as `nplm spell RUN` has learned to')
    parser.add_argument('--weights', default='', help=helps['weights'])
    parser.add_argument('--format', default='words', choices=('words', 'lm-zoo'), help=helps['format'])
    flags = parser.parse_args(argv)
    if flags.format == 'lm-zoo':
        one = len(flags.workdir) == 1 or bool(flags.weights)
        require(one, 'RUN', flags.workdir, 'give one for --format=lm-zoo, or --weights for the mixture')
        require(not flags.spillover, '--spillover', flags.spillover, 'belongs to --format=words')
        require(flags.punctuation == 'attached', '--punctuation', flags.punctuation, 'belongs to --format=words')
    return flags


def _read_stimuli(flags: argparse.Namespace) -> Stimuli:
    from nplm_jax.cli.score import read_stdin
    from nplm_jax.data import stimuli, stimulus_files

    if not flags.table:
        text = read_stdin()
        return stimuli.from_text(text.replace('\n', '\n\n') if flags.format == 'lm-zoo' else text, 'stdin')
    names = stimuli.ColumnNames(flags.item, flags.zone, flags.word)
    return stimulus_files.read(expand('--table', flags.table), names)


def _name_models(models: LoadedModels, with_mixture: bool) -> dict[str, LoadedModel]:
    """Returns the models by name, the mixture last if it is wanted."""
    named = zip(models.names, models.settings, models.models)
    by_name = {name: (settings, models.vocabulary, model) for name, settings, model in named}
    if with_mixture and len(models.models) > 1:
        by_name['mixture'] = (models.settings[0], models.vocabulary, models.mixture)
    return by_name
