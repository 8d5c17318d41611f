"""An ARPA file of KenLM, SRILM or another toolkit as a run's folder, which every command then takes.

    nplm import arpa news.arpa --workdir=runs/news
    nplm import arpa news.arpa --workdir=runs/news-brown --vocabulary=runs/brown-mlp9
    nplm generate runs/brown-mlp9 runs/news-brown --weights=0.8,0.2

Writes config.json, vocabulary.txt, the model and a results.json without perplexities, and prints the folder. The
sentence marks <s> and </s> become the one paragraph mark <p>, so that lines begin after it and `nplm score --end`
scores the end of a line; <unk> or <UNK> becomes <rare>. Words stay as they are, and other commands split text at blanks
of ASCII alone and do not bring it into Unicode's normal form NFC, as KenLM does.

Models can be mixed only over the same words. --vocabulary=RUN gives the model the vocabulary and the text choices
(`corpus.*`) of RUN: words that both have keep their probability; those that only RUN has share that of <unk> with
<rare>; those that only the file has are summed into <rare>. So the probabilities still sum to one, and a perplexity is
comparable with RUN's.
"""

import argparse
import os
import pathlib
import shlex
from collections.abc import Sequence

from nplm_jax.cli.parser import Parser
from nplm_jax.data import formats
from nplm_jax.reporting.shell import command_line
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand


def main(argv: Sequence[str]) -> None:
    """Imports the file."""
    parser = Parser('import', __doc__)
    parser.add_argument('format', type=_format, metavar='arpa', help='format of the file')
    parser.add_argument('file', metavar='FILE', help='model to import')
    parser.add_argument(
        '--workdir', default='', metavar='DIR', help='output directory, which is required; default: none'
    )
    vocabulary = 'use the vocabulary of this run; default: that of the file'
    parser.add_argument('--vocabulary', default='', metavar='RUN', help=vocabulary)
    parser.add_plugins()
    flags = parser.parse_args(argv)
    require(bool(flags.workdir), '--workdir', flags.workdir, 'required: the folder of the run to write')

    path, folder = expand('FILE', flags.file), expand('--workdir', flags.workdir)
    from nplm_jax.runs.imported import import_arpa

    sizes = import_arpa(path, folder, flags.vocabulary, shlex.join(['nplm', 'import', *argv]))
    print(f'{folder}: {sizes}')


def _format(value: str) -> str:
    """Returns the format, which comes before the file. Raises what argparse reports for another value."""
    if value == 'arpa':
        return value
    folder = f'--workdir=runs/{formats.stem(pathlib.Path(value))}'
    command = command_line(['nplm', 'import', 'arpa', value, folder])
    advice = f'; to import the file, run: {command}' if '.' in value or os.path.exists(value) else ''
    raise argparse.ArgumentTypeError(f'must be arpa{advice}')
