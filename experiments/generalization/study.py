"""Count-based models and networks against the exact entropy of a grammar, from 100 to 1,000,000 training words.

    python -m experiments.generalization.study              measures, writes results/WORDS.json, prints the table
    python -m experiments.generalization.study --show       the table of the committed results, nothing measured
    python -m experiments.generalization.study --counts     every count-based model of them
    python -m experiments.generalization.study --figure     draws generalization.png from them

--sizes 100 1000 measures these training sizes alone; --output=FOLDER writes and reads elsewhere.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import pathlib
import shlex
import sys
import tempfile
import time
import warnings
from typing import Any

import jax.numpy as jnp

from experiments import results
from experiments.generalization import grammar
from nplm_jax.config import CorpusSettings, ModelSettings, NgramSettings, OptimizerSettings, Settings, TrainSettings
from nplm_jax.data import dataset
from nplm_jax.data.corpora import Span
from nplm_jax.data.vocabulary import RARE, Vocabulary
from nplm_jax.distributed import multihost
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.models import language_model, nplm
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.ngram import factory
from nplm_jax.models.ngram.kneser_ney import DiscountWarning
from nplm_jax.runs import process, provenance
from nplm_jax.training import loop
from nplm_jax.utils.io import expand
from nplm_jax.utils.text import markdown_table, save_figure

HERE = pathlib.Path(__file__).parent
RESULTS = HERE / 'results'
SIZES = (100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000)  # training words
SEEDS = {'train': 1, 'valid': 2, 'test': 3}  # of the texts
WORDS = {'valid': 20_000, 'test': 60_000}
CORPUS = CorpusSettings('text')  # the models ask for one; the words come from the grammar


def _counts(family: str, n: int, **needs: float) -> Settings:
    name = ' '.join([family, f'n={n}', *(f'{key}={value:g}' for key, value in needs.items())])
    return Settings(name, CORPUS, ModelSettings(n, family=family), ngram=NgramSettings(**needs))


COUNTS = (  # estimated at every size; the best on validation words stands for its kind
    *(_counts('add_delta', n, delta=d) for n in (2, 3) for d in (0.01, 0.1)),
    _counts('interpolated', 3),
    *(_counts('modified_kneser_ney', n) for n in (2, 3, 4, 5, 8)),
    *(_counts('classes', n, classes=c) for n in (3, 5) for c in (10, 30, 50, 100)),
)
UPDATES = (1000, 10_000)  # of a network, at least and at most; fewer where validation ends it
NETWORKS = {
    'nplm': ModelSettings(n=8, m=16, h=60),
    'rnn': ModelSettings(family='rnn', m=16, h=100),
}
KINDS = {'word n-gram': 'blue', 'class n-gram': 'green', 'nplm': 'red', 'rnn': 'orange'}  # and their colours


def recipe(family: str, words: int) -> Settings:
    """How a network is trained on so many words: half as many updates as words, within UPDATES."""
    batch_size = 32 if words < 3000 else 128 if words < 300_000 else 256
    updates = min(max(words // 2, UPDATES[0]), UPDATES[1])
    train = TrainSettings(
        batch_size=batch_size,
        epochs=max(1, round(updates / (words // batch_size))),
        evaluate_every=updates // 20,
        patience=5,
        steps_per_execution=100,
    )
    model = dataclasses.replace(NETWORKS[family], dropout=0.2 if words < 30_000 else 0.1)
    return Settings(family, CORPUS, model, OptimizerSettings('adam', 3e-3, decay=1e-4), train)


def make_data(words: int) -> dataset.Dataset:
    """The first words of one training text, then the same validation and test texts at every size."""
    language = grammar.cats_and_dogs()
    known = grammar.vocabulary(language)
    vocabulary = Vocabulary((RARE, *known), (0,) * (1 + len(known)))
    texts = [grammar.text(language, SEEDS[s], n) for s, n in {'train': words, **WORDS}.items()]
    ends = [words, words + WORDS['valid'], words + sum(WORDS.values())]
    tokens_T = jnp.asarray(vocabulary.encode(word for text in texts for word in text))
    return dataset.Dataset(tokens_T, *map(Span, [0, *ends], ends), vocabulary)


def fit(wanted: Settings, data: dataset.Dataset) -> tuple[LanguageModel, dict[str, Any]]:
    """A model of these training words, and what there is to say of its training; networks as they were best."""
    if not wanted.model.is_network:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter('ignore', DiscountWarning)  # a hundred words are too few to estimate them
            return factory.estimate(wanted, data, pathlib.Path(folder)), {}
    nothing = multihost.Silent()
    best, progress = loop.fit(wanted, data, nothing, nothing)
    facts = {'parameters': nplm.count(best), 'updates': progress.step, 'best_update': progress.best_step}
    return language_model.from_params(best, wanted.model.n), facts


def measure(words: int) -> dict[str, Any]:
    """All models of so many training words: perplexities of the same validation and test words."""
    source, data, models = provenance.provenance(), make_data(words), {}
    for wanted in (*COUNTS, *(recipe(family, words) for family in NETWORKS)):
        started = time.perf_counter()
        model, facts = fit(wanted, data)
        facts['seconds'] = round(time.perf_counter() - started, 2)
        spans = {split: data.splits[split] for split in WORDS}
        found = {s: evaluate(model, data.tokens_T, span).perplexity for s, span in spans.items()}
        models[wanted.name] = {**found, **facts}
        print(f'{words:,} words, {wanted.name}: {found["test"]:.2f}', file=sys.stderr)
    language = grammar.cats_and_dogs()
    log_p = grammar.log_probabilities(language, grammar.text(language, SEEDS['test'], WORDS['test']))
    return {
        'words': words,
        'vocabulary': len(data.vocabulary),
        'floor': grammar.floor(language),
        'floor_of_test_words': math.exp(-math.fsum(log_p) / len(log_p)),
        'models': models,
        'seeds': SEEDS,
        'load': os.getloadavg()[0],
        'command': shlex.join(['python', '-m', 'experiments.generalization.study', *sys.argv[1:]]),
        **source,
    }


def read(folder: pathlib.Path) -> list[dict[str, Any]]:
    """The results of every size. Raises: BadInput naming the file of a size that was not measured."""
    return [results.read(folder, str(words)) for words in SIZES]


def best(found: dict[str, Any], kind: str) -> str:
    """The model of a kind with the lowest validation perplexity."""
    names = [name for name in found['models'] if kind_of(name) == kind]
    return min(names, key=lambda name: found['models'][name]['valid'])


def kind_of(name: str) -> str:
    """Which of KINDS a model is."""
    family = name.split()[0]
    return family if family in NETWORKS else 'class n-gram' if family == 'classes' else 'word n-gram'


def over(found: dict[str, Any], kind: str) -> float:
    """How far the best of a kind is above the floor of the test words: 0.03 is 3% of perplexity."""
    return found['models'][best(found, kind)]['test'] / found['floor_of_test_words'] - 1


def make_table(measured: list[dict[str, Any]]) -> str:
    """One line a size: of the best of each kind the test perplexity, and how far above the floor that is."""
    which = ['which word n-gram', 'which class n-gram']
    header, lines = ['training words', *(cell for kind in KINDS for cell in (kind, 'over')), *which], []
    for found in measured:
        cells = [(found['models'][best(found, kind)]['test'], f'{over(found, kind):.1%}') for kind in KINDS]
        chosen = [best(found, kind) for kind in ('word n-gram', 'class n-gram')]
        lines.append([f'{found["words"]:,}', *(c for pair in cells for c in pair), *chosen])
    return markdown_table(header, lines)


def make_counts_table(measured: list[dict[str, Any]]) -> str:
    """One line a count-based model: its test perplexity at every size."""
    header = ['test perplexity', *(f'{found["words"]:,}' for found in measured)]
    return markdown_table(header, [[s.name, *(found['models'][s.name]['test'] for found in measured)] for s in COUNTS])


def holds(found: dict[str, Any]) -> bool:
    """Whether the network is within 3% of the floor and every kind of n-gram over 25% above it."""
    return over(found, 'nplm') <= 0.03 and all(over(found, kind) > 0.25 for kind in ('word n-gram', 'class n-gram'))


def draw(measured: list[dict[str, Any]], path: pathlib.Path) -> None:
    """Perplexity in floors against training words, shaded at the sizes where the claim holds."""
    import matplotlib.figure  # noqa: PLC0415 (only the figure needs it)

    axes = (figure := matplotlib.figure.Figure(figsize=(7, 4.5), layout='constrained')).subplots()
    sizes = [found['words'] for found in measured]
    for kind, colour in KINDS.items():
        label = f'best {kind}' if 'n-gram' in kind else kind.upper()
        axes.plot(sizes, [1 + over(found, kind) for found in measured], 'o-', color=colour, label=label, markersize=4)
    axes.axhline(1, color='black', label='entropy of the grammar')
    axes.axhline(1.03, color='grey', linestyle=':', label='3% and 25% above it')
    axes.axhline(1.25, color='grey', linestyle=':')
    for size in (found['words'] for found in measured if holds(found)):
        axes.axvspan(size / 1.8, size * 1.8, color='gold', alpha=0.25, linewidth=0)
    axes.set(title='shaded: NPLM within 3% of the entropy, every n-gram over 25%', xlim=(70, 1.8e6))
    axes.set(xscale='log', yscale='log', xlabel='training words', ylabel='test perplexity / floor')
    ticks = (1, 1.25, 1.5, 2, 3, 5, 10, 20)
    axes.set_yticks(ticks, [f'{tick:g}' for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.grid(alpha=0.3)
    axes.legend()
    save_figure(figure, path)


def main() -> None:
    """Measures unless told only to show, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--show', action='store_true', help='print the table of the results that are there')
    parser.add_argument('--counts', action='store_true', help='print their count-based models')
    parser.add_argument('--figure', action='store_true', help='draw the figure of them')
    parser.add_argument('--sizes', type=int, nargs='+', choices=SIZES, default=SIZES, help='training words to measure')
    parser.add_argument('--output', default=str(RESULTS), help='the folder of the results')
    flags = parser.parse_args()
    folder = expand('--output', flags.output)
    if not (flags.show or flags.counts or flags.figure):
        process.set_up_process()
        folder.mkdir(parents=True, exist_ok=True)
        for words in flags.sizes:
            results.write(folder / f'{words}.json', measure(words))
    results.show(lambda: (make_counts_table if flags.counts else make_table)(read(folder)))
    if flags.figure:
        draw(read(folder), HERE / 'generalization.png')


if __name__ == '__main__':
    main()
