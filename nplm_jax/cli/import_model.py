"""Imports an ARPA file from KenLM, SRILM or another toolkit as a run that every command accepts.

    nplm import news.arpa --workdir=runs/news
    nplm import news.arpa --workdir=runs/news-brown --vocabulary=runs/brown-mlp9
    nplm generate runs/brown-mlp9 runs/news-brown --weights=0.8,0.2

Writes config.json, vocabulary.txt, the model, and a results.json without perplexities. Prints the path of the folder
and the size of the model. The sentence marks <s> and </s> become the paragraph mark <p>. Each line is scored as if it
followed a <p>, and `nplm score --end` also scores a <p> at the end of the line. <unk> or <UNK> becomes <rare>. All
other words are unchanged. Commands split text for the imported run as KenLM does: only at ASCII whitespace, without
Unicode normalization.

Only models with the same vocabulary can be mixed. --vocabulary=RUN gives the model the vocabulary and the text settings
(`corpus.*`) of RUN. Words in both vocabularies keep their probabilities. Words that only RUN contains share the
probability of <unk> with <rare>. The probabilities of words that only the file contains are added to <rare>. The
probabilities still sum to one, so the perplexities of the model and of RUN are comparable.
"""

import argparse
import shlex

from nplm_jax.cli.parser import Parser
from nplm_jax.runs.imported import import_arpa
from nplm_jax.utils.io import expand


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.add_argument('file', metavar='FILE', help='ARPA file to import')
    parser.add_argument('--workdir', required=True, metavar='DIR', help='folder to write the new run to; required')
    vocabulary = 'run whose vocabulary the model should use; default: the words of the file'
    parser.add_argument('--vocabulary', default='', metavar='RUN', help=vocabulary)
    parser.add_plugins()


def main(flags: argparse.Namespace) -> None:
    """Imports the ARPA file as a run."""
    path, folder = expand('FILE', flags.file), expand('--workdir', flags.workdir)
    sizes = import_arpa(path, folder, flags.vocabulary, shlex.join(['nplm', *flags.typed]))
    print(f'{folder}: {sizes}')
