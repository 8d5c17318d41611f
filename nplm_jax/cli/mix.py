"""Mixes trained models with weights learned on the validation words and evaluates the mixtures.

    nplm mix runs/brown-lstm runs/brown-mlp9 runs/brown-kneser_ney_5 --output=weights.json
    nplm generate runs/brown-lstm runs/brown-mlp9 runs/brown-kneser_ney_5 --weights=weights.json
    nplm mix runs/brown-kneser_ney_5 runs/brown-modified_kneser_ney_3 --to=arpa --output=mixed.arpa

Prints the perplexities of each model and of three mixtures: with equal weights, with optimal weights, and with optimal
weights for each frequency bin of the two preceding words (section 4.2). --output=FILE writes the weights as JSON; other
commands read them with --weights=FILE. The file contains a digest of each run, so runs may be moved or renamed, but not
replaced. All runs must use the same corpus, which the command reads again.

--to=arpa writes the mixture of back-off models with the learned weights as a single back-off model, in the same way as
SRILM's `ngram -mix-lm`. The command prints the perplexities of the mixture and of the single model. Both assign the
same probabilities to the n-grams stored in the mixed models. The probabilities of other n-grams may differ. The
probabilities of each model must sum to one, so models with a limited vocabulary cannot be written. With --weights, the
command neither learns weights nor reads the corpus.
"""

from __future__ import annotations

import argparse
from typing import Any

from nplm_jax.cli.outputs import print_results
from nplm_jax.cli.parser import Parser
from nplm_jax.data.dataset import Dataset
from nplm_jax.inference import perplexity
from nplm_jax.models import mixture
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.ngram import arpa, lines, sentence_marks, static_mixture
from nplm_jax.ngram.counts import count
from nplm_jax.ngram.interpolated import FrequencyBins
from nplm_jax.ngram.shared_scratch import SharedScratch
from nplm_jax.reporting import provenance
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs.command_models import load_models
from nplm_jax.runs.mixture_weights import read_weights
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand, write_failure_as_bad_input

HEADER = ['model', 'valid', 'test', 'weight: equal', 'learned']
SPLITS = ('valid', 'test')


def define(parser: Parser) -> None:
    """Adds the flags."""
    parser.add_runs()
    parser.add_results(
        'JSON file to write the weights to or, with --to=arpa, ARPA file to write the mixture to; default: none'
    )
    parser.add_argument(
        '--to',
        choices=['arpa'],
        help='write the mixture to --output as a single back-off model in this format; default: no model',
    )
    weights = (
        'weights of the runs: numbers such as 0.7,0.3, or a JSON file written by this command; default: learned weights'
    )
    parser.add_owned('to', '--weights', default='', help=weights)


def main(flags: argparse.Namespace) -> None:
    """Mixes the models and prints the table."""
    require(len(flags.runs) > 1, 'RUN', flags.runs[0], 'at least two runs are required')
    is_arpa = flags.output.lower().endswith('.arpa')
    require(bool(flags.to) or not is_arpa, '--output', flags.output, 'requires --to=arpa; the weights are a JSON file')
    if flags.to:
        _write_arpa(flags)
        return

    loaded = load_models(flags.runs)
    data = loaded.read_corpus()
    models = [mixture.CachedScores(model) for model in loaded.models]
    counts = count(data.tokens_T, data.train, 3, len(data.vocabulary), SharedScratch(), lines.marks_of(data))
    bins = FrequencyBins.from_counts(counts)
    equal, learned, by_frequency = mixture.paper_mixtures(models, data.tokens_T, data.valid, bins)

    rows = []
    for name, folder, model, weight in zip(loaded.names, flags.runs, models, learned.weights_QxM[0].tolist()):
        rows.append({**provenance.of_model(name, folder), **_perplexities(model, data), 'weight': weight})
    mixtures = {'equal': equal, 'learned': learned, 'by_frequency': by_frequency}
    results = {'models': rows, 'mixtures': {name: _perplexities(model, data) for name, model in mixtures.items()}}
    print_results(flags, results, make_table(results))


def _write_arpa(flags: argparse.Namespace) -> None:
    """Writes the mixture as a single back-off model. Prints its size and, if weights were learned, its perplexity."""
    require(bool(flags.output), '--output', '', 'must name the ARPA file to write')
    path = expand('--output', flags.output)

    loaded = load_models(flags.runs, flags.weights)
    models, learned = loaded.backoff_models(), None
    if flags.weights:
        weights = read_weights(flags.weights, flags.runs)[0].tolist()
    else:
        try:
            data = loaded.read_corpus()
        except BadInput as error:
            raise BadInput(
                error.key,
                f'{error.problem} (learning the weights requires the corpus; for fixed weights, use --weights=NUMBERS)',
                value=error.value,
            ) from None
        scored = [mixture.CachedScores(model) for model in models]
        learned = mixture.fit(scored, data.tokens_T, data.valid)
        weights = learned.weights_QxM[0].tolist()
    begin = sentence_marks.line_beginnings(models, loaded.vocabulary)
    static = static_mixture.interpolate([*models, *begin], [*weights, *[0.0] * len(begin)])
    with write_failure_as_bad_input('--output', path):
        arpa.write(static, loaded.vocabulary, path)
    sizes = [static.table.size(k) for k in range(1, static.n + 1)]
    rows: list[dict[str, Any]] = [{'name': name, 'weight': weight} for name, weight in zip(loaded.names, weights)]
    results = {'models': rows, 'file': str(path), 'bytes': path.stat().st_size, 'ngrams': sizes}
    shown = f'{path}: {results["bytes"]:,} bytes, {sum(sizes):,} n-grams'
    if learned:
        for row, model in zip(rows, scored):
            row |= _perplexities(model, data)
        mixtures = {'dynamic': _perplexities(learned, data), 'static': _perplexities(static, data)}
        results['mixtures'] = mixtures
        table = [[row['name'], row['valid'], row['test'], f'{row["weight"]:.2f}'] for row in rows]
        table += [[f'mixed, {name}', *found.values(), ''] for name, found in mixtures.items()]
        shown = markdown_table(['model', *SPLITS, 'weight'], table) + '\n\n' + shown
    print_results(argparse.Namespace(**{**vars(flags), 'output': ''}), results, shown)


def _perplexities(model: LanguageModel, data: Dataset) -> dict[str, float]:
    """Returns the perplexities of the validation and test words, by split."""
    return {s: perplexity.evaluate(model, data.tokens_T, data.splits[s]).perplexity for s in SPLITS}


def make_table(results: dict[str, Any]) -> str:
    """Returns a Markdown table of the models and their mixtures."""
    models = results['models']
    rows = [[m['name'], *(m[s] for s in SPLITS), f'{1 / len(models):.2f}', f'{m["weight"]:.2f}'] for m in models]
    for name, perplexities in results['mixtures'].items():
        rows.append([f'mixed, {name.replace("_", " ")}', *(perplexities[s] for s in SPLITS), '', ''])
    return markdown_table(HEADER, rows)
