"""Compares count-based models and networks with the exact entropy of a grammar, for 100 to 1,000,000 training words.

    python -m experiments.paper.generalization.study            measures, writes results/WORDS.json and prints the table
    python -m experiments.paper.generalization.study --show     prints the table of the committed results
    python -m experiments.paper.generalization.study --counts   prints the table of the count-based models
    python -m experiments.paper.generalization.study --figure   draws generalization.png from the committed results

--sizes 100 1000 measures only these training sizes. --output=FOLDER sets another results folder.
"""

from __future__ import annotations

import math
import os
import pathlib
import sys
import tempfile
import time
import warnings
from typing import Any

from configs import text
from experiments import results, study
from experiments.paper.generalization import grammar
from experiments.sources import of_module
from nplm_jax.config import settings as config_lib
from nplm_jax.config.registry import is_neural
from nplm_jax.config.settings import Settings
from nplm_jax.data import dataset
from nplm_jax.data.stream import RARE, Span
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.ngram.kneser_ney import DiscountWarning
from nplm_jax.reporting.text import markdown_table, save_figure
from nplm_jax.runs import estimation, process
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import train as train_lib
from nplm_jax.training.reporter import Reporter

RESULTS = pathlib.Path(__file__).parent / 'results'
SIZES = (100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000)  # training words
SEEDS = {'train': 1, 'valid': 2, 'test': 3}  # of the texts
WORDS = {'valid': 20_000, 'test': 60_000}


def _settings(changes: dict[str, Any]) -> Settings:
    """Returns the settings of configs/text.py with some flattened keys changed. The words come from the grammar."""
    return config_lib.replace(config_lib.from_config(text.get_config()), changes)


def _counts(family: str, n: int, **keys: float) -> Settings:
    """Returns the settings of a count-based model."""
    name = ' '.join([family, f'n={n}', *(f'{key}={value:g}' for key, value in keys.items())])
    changes = {'name': name, 'model.family': family, 'model.n': n}
    return _settings(changes | {f'model.{key}': value for key, value in keys.items()})


COUNTS = (  # estimated at every size; the table shows the model of each kind with the best validation perplexity
    *(_counts('add_delta', n, delta=d) for n in (2, 3) for d in (0.01, 0.1)),
    _counts('interpolated', 3),
    *(_counts('modified_kneser_ney', n) for n in (2, 3, 4, 5, 8)),
    *(_counts('classes', n, classes=c) for n in (3, 5) for c in (10, 30, 50, 100)),
)
UPDATES = (1000, 10_000)  # minimum and maximum for a network, although early stopping may end training sooner
NETWORKS = {'nplm': {'model.n': 8, 'model.m': 16, 'model.h': 60}, 'rnn': {'model.m': 16, 'model.h': 100}}
KINDS = {'word n-gram': 'blue', 'class n-gram': 'green', 'nplm': 'red', 'rnn': 'orange'}  # name -> colour


def recipe(family: str, words: int) -> Settings:
    """Returns a network's settings for the given number of training words: one update per two words, within UPDATES."""
    batch_size = 32 if words < 3000 else 128 if words < 300_000 else 256
    updates = min(max(words // 2, UPDATES[0]), UPDATES[1])
    return _settings(
        {
            'name': family,
            'model.family': family,
            **NETWORKS[family],
            'train.unigram_bias': True,
            'model.dropout': 0.2 if words < 30_000 else 0.1,
            'optimizer.name': 'adam',
            'optimizer.learning_rate': 3e-3,
            'optimizer.decay': 1e-4,
            'train.batch_size': batch_size,
            'train.epochs': max(1, round(updates / (words // batch_size))),
            'train.evaluate_every': updates // 20,
            'train.patience': 5,
            'train.steps_per_execution': 100,
        }
    )


def make_data(words: int) -> dataset.Dataset:
    """Returns the first words of the training text, and the validation and test texts, which do not depend on size."""
    language = grammar.cats_and_dogs()
    words_V = grammar.vocabulary(language)
    vocabulary = Vocabulary((RARE, *words_V), (0,) * (1 + len(words_V)))
    texts = [grammar.text(language, SEEDS[s], n) for s, n in {'train': words, **WORDS}.items()]
    ends = [words, words + WORDS['valid'], words + sum(WORDS.values())]
    tokens_T = vocabulary.encode(word for text in texts for word in text)
    train, valid, test = map(Span, [0, *ends], ends)
    return dataset.Dataset(train, valid, test, tokens_T, vocabulary)


def fit(settings: Settings, data: dataset.Dataset) -> tuple[LanguageModel, dict[str, Any]]:
    """Fits a model. Returns the model (of a network, the best on validation) and statistics of its training."""
    if not is_neural(settings.model.name):
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter('ignore', DiscountWarning)  # a hundred words are too few for estimating the discounts
            return estimation.estimate(settings, data, pathlib.Path(folder)), {}
    run = prepare_run(settings, data)
    params, _, progress = train_lib.fit(train_lib.train(run, None, Reporter()))
    network = run.program.network
    facts = {'parameters': network.num_parameters(), 'updates': progress.step, 'best_update': progress.best_step}
    return NeuralLanguageModel(network, params), facts


def measure(words: int) -> dict[str, Any]:
    """Fits all models on the given number of training words. Returns the content of the JSON file."""
    source, data, models = of_module('experiments.paper.generalization.study'), make_data(words), {}
    for settings in (*COUNTS, *(recipe(family, words) for family in NETWORKS)):
        started = time.perf_counter()
        model, facts = fit(settings, data)
        facts['seconds'] = round(time.perf_counter() - started, 2)
        spans = {split: data.splits[split] for split in WORDS}
        perplexity = {s: evaluate(model, data.tokens_T, span).perplexity for s, span in spans.items()}
        models[settings.name] = {**perplexity, **facts}
        print(f'{words:,} words, {settings.name}: {perplexity["test"]:.2f}', file=sys.stderr)
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
        **source,
    }


def read(folder: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the results for every size. Raises BadInput with the name of the file if a size was not measured."""
    return [results.read(folder, str(words)) for words in SIZES]


def best(measured: dict[str, Any], kind: str) -> str:
    """Returns the model of a kind with the lowest validation perplexity."""
    names = [name for name in measured['models'] if kind_of(name) == kind]
    return min(names, key=lambda name: measured['models'][name]['valid'])


def kind_of(name: str) -> str:
    """Returns the kind of a model, an element of KINDS."""
    family = name.split()[0]
    return family if family in NETWORKS else 'class n-gram' if family == 'classes' else 'word n-gram'


def excess(measured: dict[str, Any], kind: str) -> float:
    """Returns how far the best perplexity of a kind is above the floor, as a fraction: 0.03 is 3%."""
    return measured['models'][best(measured, kind)]['test'] / measured['floor_of_test_words'] - 1


def make_table(sizes: list[dict[str, Any]]) -> str:
    """Returns one line per size: the best test perplexity of each kind, and how far it is above the floor."""
    which = ['which word n-gram', 'which class n-gram']
    header, lines = ['training words', *(cell for kind in KINDS for cell in (kind, 'over')), *which], []
    for measured in sizes:
        cells = [(measured['models'][best(measured, kind)]['test'], f'{excess(measured, kind):.1%}') for kind in KINDS]
        chosen = [best(measured, kind) for kind in ('word n-gram', 'class n-gram')]
        lines.append([f'{measured["words"]:,}', *(c for pair in cells for c in pair), *chosen])
    return markdown_table(header, lines)


def make_counts_table(sizes: list[dict[str, Any]]) -> str:
    """Returns one line per count-based model: its test perplexity at every size."""
    header = ['test perplexity', *(f'{measured["words"]:,}' for measured in sizes)]
    return markdown_table(header, [[s.name, *(m['models'][s.name]['test'] for m in sizes)] for s in COUNTS])


def claim_holds(measured: dict[str, Any]) -> bool:
    """Returns whether the network is within 3% of the floor while every kind of n-gram is more than 25% above it."""
    return excess(measured, 'nplm') <= 0.03 and all(
        excess(measured, kind) > 0.25 for kind in ('word n-gram', 'class n-gram')
    )


def draw(sizes: list[dict[str, Any]], path: pathlib.Path) -> None:
    """Draws the ratio of the perplexity to the floor by training words, with shading where the claim holds."""
    import matplotlib.figure  # noqa: PLC0415 (only the figure needs it)

    axes = (figure := matplotlib.figure.Figure(figsize=(7, 4.5), layout='constrained')).subplots()
    words = [measured['words'] for measured in sizes]
    for kind, colour in KINDS.items():
        label = f'best {kind}' if 'n-gram' in kind else kind.upper()
        axes.plot(
            words, [1 + excess(measured, kind) for measured in sizes], 'o-', color=colour, label=label, markersize=4
        )
    axes.axhline(1, color='black', label='entropy of the grammar')
    axes.axhline(1.03, color='grey', linestyle=':', label='3% and 25% above it')
    axes.axhline(1.25, color='grey', linestyle=':')
    for size in (measured['words'] for measured in sizes if claim_holds(measured)):
        axes.axvspan(size / 1.8, size * 1.8, color='gold', alpha=0.25, linewidth=0)
    axes.set(title='shaded: NPLM within 3% of the entropy, every n-gram over 25%', xlim=(70, 1.8e6))
    axes.set(xscale='log', yscale='log', xlabel='training words', ylabel='test perplexity / floor')
    ticks = (1, 1.25, 1.5, 2, 3, 5, 10, 20)
    axes.set_yticks(ticks, [f'{tick:g}' for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.grid(alpha=0.3)
    axes.legend()
    save_figure(figure, path)


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_switch('--counts', 'print the table of the count-based models without measuring anything')
    parser.add_switch('--figure', 'draw the figure from the committed results without measuring anything')
    parser.add_argument(
        '--sizes',
        type=int,
        nargs='+',
        choices=SIZES,
        default=SIZES,
        help='sizes of the training texts to measure, in words',
    )
    parser.add_output_path(RESULTS, folder=True)


def main(flags: study.Flags) -> None:
    """Measures the models at each training size unless --counts or --figure is set, and prints the table."""
    if not (flags.counts or flags.figure):
        process.set_up_process()
        folder = flags.output
        folder.mkdir(parents=True, exist_ok=True)
        for words in flags.sizes:
            results.write(folder / f'{words}.json', measure(words))
    print(study.shown(show, flags))


def show(flags: study.Flags) -> str:
    """Returns a table. Draws the figure if requested."""
    sizes = read(flags.output)
    if flags.figure:
        draw(sizes, flags.output.parent / 'generalization.png')
    return (make_counts_table if flags.counts else make_table)(sizes)


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show)
