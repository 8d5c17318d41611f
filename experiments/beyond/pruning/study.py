"""Measures how small an n-gram model can become, and how the mixture of two as one model differs from the mixture.

    python -m experiments.beyond.pruning.study --measure=brown,wikitext2
    python -m experiments.beyond.pruning.study                             # prints the tables of the committed results

All models have n = 5 and are estimated as `launch.py` does with the same keys. Sizes are those of model.safetensors.
The words of WikiText-2 have `<text>` and `<p>` before lines (corpus.paragraphs=auto).
"""

from __future__ import annotations

import json
import pathlib
import tempfile
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from configs import brown, wikitext2
from experiments import results, study
from experiments.sources import of_module
from nplm_jax.config import settings as config_lib
from nplm_jax.config.settings import Settings
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import Span
from nplm_jax.models import mixture
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.ngram import entropy_pruning, kneser_ney, static_mixture, storage
from nplm_jax.ngram.backoff import BackoffModel
from nplm_jax.ngram.counts import count
from nplm_jax.ngram.shared_scratch import SharedScratch
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs import estimation, loading
from nplm_jax.utils.errors import require

RESULTS = pathlib.Path(__file__).parent / 'results'
CORPORA = {'brown': brown, 'wikitext2': wikitext2}
NAMES = {'brown': 'Brown', 'wikitext2': 'WikiText-2'}
THRESHOLDS = {
    'modified_kneser_ney': (1e-9, 3e-9, 1e-8, 3e-8, 1e-7, 2e-7, 3e-7, 1e-6),
    'kneser_ney': (1e-9, 1e-8, 1e-7, 1e-6),
}
PRUNING = ('model.prune', 'model.prune_entropy', 'model.bits')
OTHERS = (  # values of these keys
    ('0 0 0 1', 0.0, 0),
    ('0 0 1', 0.0, 0),
    ('0 0 2', 0.0, 0),
    ('0 1', 0.0, 0),
    ('0 1 2', 0.0, 0),
    ('0 0 0 1', 3e-8, 0),
    ('0 0 1', 1e-7, 0),
    ('0', 1e-8, 8),
    ('0', 3e-8, 8),
    ('0 0 1', 1e-7, 8),
)
SHARES = (0.5, 0.25, 0.1, 0.05)  # of the n-grams, at which the probabilities of contexts are compared
_BISECTIONS = 16


def grid() -> Iterator[dict[str, Any]]:
    """Yields the keys of each model."""
    for family, thresholds in THRESHOLDS.items():
        yield {'model.family': family}
        for threshold in thresholds:
            yield {'model.family': family, 'model.prune_entropy': threshold}
    for keys in OTHERS:
        yield {'model.family': 'modified_kneser_ney', **dict(zip(PRUNING, keys))}


def measure(corpus: str) -> Iterator[dict[str, Any]]:
    """Yields what all tables show of a corpus, after each model."""
    changes = wikitext2.BY_ARTICLES if corpus == 'wikitext2' else {}
    settings = config_lib.from_config(config_lib.override(CORPORA[corpus].get_config('modified_kneser_ney_5'), changes))
    data = loading.load_dataset(settings)
    measured: dict[str, Any] = {'words': len(data.train), 'models': []}
    for changes in grid():
        row = {**changes, **_measure_model(config_lib.replace(settings, changes), data)}
        measured['models'].append(row)
        print(json.dumps(row), flush=True)
        yield measured
    yield (measured := {**measured, 'contexts': _compare_contexts(data)})
    yield {**measured, 'mixtures': _compare_mixtures(data)}


def _measure_model(settings: Settings, data: Dataset) -> dict[str, Any]:
    """Estimates a model. Returns its size, its perplexity and the seconds of the estimate."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        model = estimation.estimate(settings, data, pathlib.Path(folder))
        seconds = time.perf_counter() - start
        storage.save(model, pathlib.Path(folder) / storage.MODEL_FILE)
        size = (pathlib.Path(folder) / storage.MODEL_FILE).stat().st_size
    return {'ngrams': _sizes(model), 'bytes': size, **_perplexities(model, data), 'seconds': seconds}


def _compare_contexts(data: Dataset) -> list[dict[str, Any]]:
    """Prunes a model to some sizes with each of three probabilities of contexts. Returns the test perplexities."""
    counts = count(data.tokens_T, data.train, 5, len(data.vocabulary), SharedScratch())
    model = kneser_ney.fit_modified(counts)
    kinds = {
        'product': entropy_pruning.context_probabilities(model),
        'frequency': [counts.totals(k) / len(data.train) for k in range(2, 6)],
        'discounted': kneser_ney.context_probabilities(counts),
    }
    rows = []
    for share in SHARES:
        for kind, context_p in kinds.items():
            low, high = -11.0, -4.0
            for _ in range(_BISECTIONS):
                middle = (low + high) / 2
                pruned = entropy_pruning.prune(model, context_p, 10**middle)
                low, high = (middle, high) if sum(_sizes(pruned)) > share * sum(_sizes(model)) else (low, middle)
            found = {'threshold': 10**middle, 'ngrams': _sizes(pruned), **_perplexities(pruned, data)}
            rows.append({'share': share, 'contexts': kind, **found})
    return rows


def _compare_mixtures(data: Dataset) -> list[dict[str, Any]]:
    """Mixes two models with learned weights, as a mixture and as one model."""
    train, size = data.train, len(data.vocabulary)
    middle = (train.start + train.stop) // 2
    halves = [Span(train.start, middle), Span(middle, train.stop)]
    pairs = {
        'modified Kneser-Ney and Kneser-Ney': [
            fit(count(data.tokens_T, train, 5, size, SharedScratch()))
            for fit in (kneser_ney.fit_modified, kneser_ney.fit_backoff)
        ],
        'modified Kneser-Ney of each half of the text': [
            kneser_ney.fit_modified(count(data.tokens_T, half, 5, size, SharedScratch())) for half in halves
        ],
    }
    rows = []
    for name, models in pairs.items():
        dynamic = mixture.fit(models, data.tokens_T, data.valid)
        weights = dynamic.weights_QxM[0].tolist()
        start = time.perf_counter()
        static = static_mixture.interpolate(models, weights)
        seconds = time.perf_counter() - start
        found = {'parts': [_perplexities(model, data) for model in models], 'dynamic': _perplexities(dynamic, data)}
        found |= {'static': _perplexities(static, data), 'seconds': seconds, 'weights': weights}
        rows.append({'models': name, **found, 'ngrams': [*map(_sizes, models), _sizes(static)]})
    return rows


def _sizes(model: LanguageModel) -> list[int]:
    assert isinstance(model, BackoffModel)
    return [model.table.size(k) for k in range(1, model.n + 1)]


def _perplexities(model: LanguageModel, data: Dataset) -> dict[str, float]:
    splits = ('valid', 'test')
    return {s: float(np.exp(-model.score(data.tokens_T, data.splits[s]).mean(dtype=np.float64))) for s in splits}


def models_table(corpus: str) -> str:
    """Returns a Markdown table of the pruned models of a corpus."""
    rows, full = [], {}
    for row in results.read(RESULTS, corpus)['models']:
        family, num_ngrams = row['model.family'], sum(row['ngrams'])
        keys = [f'`{key.partition(".")[2]}={row[key]!r}`' for key in PRUNING if row.get(key) not in (None, '0', 0)]
        full.setdefault(family, row)
        share, change = num_ngrams / sum(full[family]['ngrams']), row['test'] / full[family]['test'] - 1
        sizes = [f'{num_ngrams:,}', f'{share:.1%}', f'{row["bytes"] / 1e6:.1f}']
        rows.append([family, ', '.join(keys), *sizes, f'{row["valid"]:.2f}', f'{row["test"]:.2f}', f'{change:+.2%}'])
    header = [f'{NAMES[corpus]}: family', 'keys', 'n-grams', 'share', 'MB', 'valid', 'test', 'test, change']
    return markdown_table(header, rows)


def contexts_table() -> str:
    """Returns a Markdown table of the test perplexity by size and by probability of contexts."""
    rows = []
    for corpus, name in NAMES.items():
        measured = results.read(RESULTS, corpus)['contexts']
        for share in SHARES:
            found = {row['contexts']: f'{row["test"]:.2f}' for row in measured if row['share'] == share}
            rows.append([name, f'{share:.0%}', found['product'], found['frequency'], found['discounted']])
    header = ['test perplexity', 'share of n-grams', 'product of model', 'frequency', 'discounted frequency']
    return markdown_table(header, rows)


def mixtures_table() -> str:
    """Returns a Markdown table of mixtures and of the models that they become."""
    rows = []
    for corpus, name in NAMES.items():
        for row in results.read(RESULTS, corpus)['mixtures']:
            tests = [f'{part["test"]:.2f}' for part in (*row['parts'], row['dynamic'], row['static'])]
            sizes = [f'{sum(x) / 1e6:.2f}' for x in row['ngrams']]
            rows.append([name, row['models'], *tests, ' + '.join(sizes[:2]), sizes[2], f'{row["seconds"]:.1f}'])
    test = [f'test: {name}' for name in ('first', 'second', 'mixture', 'one model')]
    return markdown_table(['corpus', 'models', *test, 'million n-grams', 'of one model', 's'], rows)


def define(parser: study.StudyParser) -> None:
    """Adds the flag of the corpora."""
    parser.add_argument('--measure', default='', help=f'corpora to measure, of {", ".join(NAMES)}; default: none')


def main(flags: study.Flags) -> None:
    """Measures the corpora of the flag."""
    names = [name for name in flags.measure.split(',') if name]
    for name in names:
        require(name in NAMES, '--measure', name, f'must be of {", ".join(NAMES)}')
    facts = of_module('experiments.beyond.pruning.study')  # the first results make the repository dirty
    for name in names:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', kneser_ney.DiscountWarning)
            results.write_each(RESULTS / f'{name}.json', ({**measured, **facts} for measured in measure(name)))


def tables(_: study.Flags) -> str:
    """Returns the tables of the committed results."""
    return '\n\n'.join([*map(models_table, NAMES), contexts_table(), mixtures_table()])


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=tables, measure_if='measure')
