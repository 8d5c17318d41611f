"""An ARPA file of KenLM, SRILM or another toolkit as a run's folder, which every command then takes.

    nplm import news.arpa --workdir=runs/news
    nplm import news.arpa --workdir=runs/news-brown --vocabulary=runs/brown-mlp9
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
import shlex

from nplm_jax.cli.parser import Parser
from nplm_jax.runs.imported import import_arpa
from nplm_jax.utils.io import expand


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.add_argument('file', metavar='FILE', help='ARPA file to import')
    parser.add_argument('--workdir', required=True, metavar='DIR', help='folder of the run to write; required')
    vocabulary = 'use the vocabulary of this run; default: that of the file'
    parser.add_argument('--vocabulary', default='', metavar='RUN', help=vocabulary)
    parser.add_plugins()


def main(flags: argparse.Namespace) -> None:
    """Imports the file."""
    path, folder = expand('FILE', flags.file), expand('--workdir', flags.workdir)
    sizes = import_arpa(path, folder, flags.vocabulary, shlex.join(['nplm', *flags.typed]))
    print(f'{folder}: {sizes}')
