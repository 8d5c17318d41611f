"""Models that adapt to the words they have read, each word predicted before it is seen.

    nplm adapt runs/brown-tied_lstm runs/brown-modified_kneser_ney_5 --output=adapted.json

Prints the perplexity of each model as it is, with an n-gram cache, and of a network also with a neural cache (Grave et
al., 2017), under dynamic evaluation (Krause et al., 2018) and with both; for several runs also those of their mixture.
The first validation words choose sizes and rates; all of them choose the weights of the mixtures. The models also
learn from the test words, and under dynamic evaluation from the validation words before them, so these perplexities
belong in a table of their own. The runs need one corpus, which is read again. A network takes 20 minutes or more on 2
CPU cores; --methods=ngram_cache takes seconds.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from nplm_jax.apps.adaptive import adaptation
from nplm_jax.cli.parser import Parser, print_results
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs.command_models import load_models
from nplm_jax.utils.errors import require

METHODS = ('ngram_cache', 'neural_cache', 'dynamic')


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.add_runs()
    methods = 'methods to evaluate, separated by commas; default: %(default)s'
    parser.add_argument('--methods', default=','.join(METHODS), help=methods)
    words = 'number of validation words that sizes and rates are tuned on'
    parser.add_argument('--tune_words', type=int, default=20_000, help=words)
    parser.add_results()


def main(flags: argparse.Namespace) -> None:
    """Measures the models and prints the table."""
    methods = flags.methods.split(',')
    known = set(methods) <= set(METHODS)
    require(known, '--methods', flags.methods, f'must be some of {", ".join(METHODS)}, between commas')
    require(flags.tune_words > 0, '--tune_words', flags.tune_words, 'must be 1 or more')

    models = load_models(flags.runs)
    data = models.read_corpus(flags.runs)
    named = dict(zip(models.names, models.models))
    rows = adaptation.adapt(named, data, flags.tune_words, methods, lambda name: print(name, file=sys.stderr))
    results = {'rows': rows, 'tune_words': flags.tune_words}
    print_results(flags, shlex.join(['nplm', *flags.typed]), results, make_table(rows))


def make_table(rows: Sequence[dict[str, Any]]) -> str:
    """Returns a Markdown table of the perplexities, the weights and the chosen values."""

    def pairs(numbers: dict[str, float]) -> str:
        return ', '.join(f'{name} {float(f"{number:.3g}"):g}' for name, number in numbers.items())

    body = [[row['name'], row['valid'], row['test'], pairs(row['weights']), pairs(row['values'])] for row in rows]
    return markdown_table(['model', 'valid', 'test', 'weights', 'chosen'], body)
