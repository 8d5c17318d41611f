"""Evaluates models that adapt to a text by learning from each word after predicting it.

    nplm adapt runs/brown-five_minutes runs/brown-modified_kneser_ney_5 --output=adapted.json
    nplm adapt runs/brown-five_minutes lm.nplm --text=novel.txt

Prints the perplexity of each model without adaptation and with an n-gram cache. Networks are also evaluated with a
neural cache (Grave et al., 2017), with dynamic evaluation (Krause et al., 2018), and with both. Several runs are also
evaluated as a mixture. Cache sizes and learning rates are tuned on the first validation words; mixture weights are
tuned on all validation words. All runs must have the same corpus, which the command reads again. Evaluating a network
takes 20 minutes or more on 2 CPU cores, or a few seconds with --methods=ngram_cache.

The models also learn from the test words and, in dynamic evaluation, from the validation words that precede the test
words. Their perplexities are therefore not comparable with those of static models.

--text=FILE evaluates the models on your text as one stream, in the same way as `nplm score --stream`; the corpus of the
runs is not needed. The first fifth of the words replaces the validation words, and the rest replaces the test words.
The gradients that scale the steps of dynamic evaluation are also measured on the first fifth instead of the training
words.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from nplm_jax.apps.adaptive import adaptation
from nplm_jax.cli.outputs import print_results
from nplm_jax.cli.parser import TEXT_START, Parser
from nplm_jax.data import unspaced_scripts
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import Span
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.reporting import provenance
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs.command_models import LoadedModels, load_models
from nplm_jax.utils.errors import require
from nplm_jax.utils.io import expand
from nplm_jax.utils.untrusted import read_text

_PARTS = 5  # parts of a text; the first is used for tuning
METHODS = ('ngram_cache', 'neural_cache', 'dynamic')


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.epilog = TEXT_START
    parser.add_runs()
    text = "text file to evaluate the models on; default: the validation and test words of the runs' corpus"
    parser.add_argument('--text', default='', metavar='FILE', help=text)
    parser.add_tokens()
    methods = 'adaptation methods to evaluate, separated by commas; default: %(default)s'
    parser.add_argument('--methods', default=','.join(METHODS), metavar='METHOD[,METHOD]', help=methods)
    words = 'number of validation words, from the first one on, used to tune cache sizes and learning rates'
    parser.add_argument('--tune_words', type=int, default=20_000, metavar='N', help=words)
    parser.add_results()


def main(flags: argparse.Namespace) -> None:
    """Evaluates the models and prints the table."""
    methods = flags.methods.split(',')
    known = set(methods) <= set(METHODS)
    require(known, '--methods', flags.methods, f'must list one or more of {", ".join(METHODS)}, separated by commas')
    require(flags.tune_words > 0, '--tune_words', flags.tune_words, 'must be at least 1')

    text = read_text('--text', expand('--text', flags.text)) if flags.text else ''
    require(bool(flags.text) or not flags.tokens, '--tokens', flags.tokens, 'requires --text')

    models = load_models(flags.runs)
    adapts = 'ngram_cache' in methods or any(isinstance(model, NeuralLanguageModel) for model in models.models)
    require(adapts, '--methods', flags.methods, 'requires a network; other models only support ngram_cache')
    data = _split(models, text, flags) if flags.text else models.read_corpus()
    named = dict(zip(models.names, models.models))
    rows = adaptation.adapt(named, data, flags.tune_words, methods, lambda name: print(name, file=sys.stderr))
    sources = list(map(provenance.of_model, models.names, flags.runs))
    results = {'rows': rows, 'tune_words': flags.tune_words, 'models': sources}
    print_results(flags, results, make_table(rows))


def _split(models: LoadedModels, text: str, flags: argparse.Namespace) -> Dataset:
    """Reads a text as a dataset, with the first fifth as training and validation words and the rest as test words.

    Raises:
        BadInput: The first fifth is too short to measure gradients.
    """
    vocabulary = models.vocabulary
    lines = unspaced_scripts.join(vocabulary, models.split_lines(text.removesuffix('\n')))
    read = models.read_stream if vocabulary.tokenizer.is_lossless else models.read_lines
    words = read(lines, flags.tokens)
    ids_T = vocabulary.encode([*itertools.chain.from_iterable(words)]).astype(np.int32)
    before_T = models.line_start.before(ids_T)
    first = Span(len(before_T), len(before_T) + len(ids_T) // _PARTS)
    allowed = f'must contain at least {_PARTS * adaptation.MIN_WORDS:,} words, not {len(ids_T):,}'
    require(len(first) >= adaptation.MIN_WORDS, '--text', flags.text, allowed)
    tokens_T = np.concatenate([before_T, ids_T])
    return Dataset(first, first, Span(first.stop, len(tokens_T)), tokens_T, vocabulary)


def make_table(rows: Sequence[dict[str, Any]]) -> str:
    """Returns a Markdown table of the perplexities, the weights and the tuned values."""

    def pairs(numbers: dict[str, float]) -> str:
        return ', '.join(f'{name} {float(f"{number:.3g}"):g}' for name, number in numbers.items())

    body = [[row['name'], row['valid'], row['test'], pairs(row['weights']), pairs(row['values'])] for row in rows]
    return markdown_table(['model', 'valid', 'test', 'weights', 'chosen'], body)
