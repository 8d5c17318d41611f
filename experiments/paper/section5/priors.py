"""Measures a penalty on C that expresses prior knowledge of similar words, from WordNet or parts of speech.

    python -m experiments.paper.section5.priors           measures missing runs and prints the tables
    python -m experiments.paper.section5.priors --show    prints the tables of the committed results
    python -m experiments.paper.section5.priors --lists=DIR    writes the lists of related words for runs of launch.py

The strength of each prior is the value in a grid that has the best validation perplexity with seed 1. In `shuffled`,
each word has the neighbours of another word, chosen at random, which removes the knowledge.
"""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

import numpy as np

from experiments import results, study
from experiments.paper.section5 import paired
from experiments.paper.section5.paired import BANDS, SEEDS
from experiments.paper.section5.plugins import neighbours
from experiments.paper.section5.plugins.neighbours import Neighbours
from nplm_jax.data.dataset import Dataset
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs import process
from nplm_jax.utils.io import expand

RESULTS = pathlib.Path(__file__).parent / 'results'
KINDS = {'wordnet': neighbours.of_wordnet, 'tags': neighbours.of_tags}
OPTIMIZER = 'experiments.paper.section5.plugins.prior:sgd'
STRENGTHS = (1e-4, 1e-3)
MODULE = 'experiments.paper.section5.priors'


def shuffle(lists: Neighbours, seed: int) -> Neighbours:
    """Returns lists in which each word with neighbours has the neighbours of another word."""
    ids_VxL, weights_VxL = map(np.array, lists)
    (has_neighbours,) = np.nonzero(ids_VxL[:, 0] != np.arange(len(ids_VxL)))
    others = np.random.default_rng(seed).permutation(has_neighbours)
    ids_VxL[has_neighbours], weights_VxL[has_neighbours] = ids_VxL[others], weights_VxL[others]
    return Neighbours(ids_VxL, weights_VxL)


def write_lists(data: Dataset, folder: pathlib.Path) -> dict[str, Neighbours]:
    """Writes the related words of each kind, and shuffled lists for each seed. Returns the unshuffled lists."""
    lists = {kind: make(paired.quick({}), data) for kind, make in KINDS.items()}
    for kind, of_kind in lists.items():
        neighbours.save(folder / f'{kind}.npz', of_kind)
        for seed in SEEDS:
            neighbours.save(folder / f'{kind} shuffled {seed}.npz', shuffle(of_kind, seed))
    return lists


def measure(record: paired.Record, folder: pathlib.Path) -> None:
    """Trains all networks that the record lacks, and writes the lists of related words to a folder."""
    data = paired.load_data()
    lists = write_lists(data, folder)

    def run(name: str, seed: int, file: str, strength: float) -> Any:
        options = {'neighbours': str(folder / f'{file}.npz'), 'strength': strength}
        prior = {
            'optimizer.name': OPTIMIZER,
            'optimizer.tables': 'same',
            **{f'optimizer.options.{key}': value for key, value in options.items()},
        }
        keys = {'seed': seed, **(prior if file else {})}
        return record.add(name, seed, lambda: paired.measure(paired.quick(keys), data)[1])

    run('none', 1, '', 0.0)
    best = {}
    for kind in KINDS:
        by_strength = {s: run(f'{kind} {s:g}', 1, kind, s)['valid'] for s in STRENGTHS}
        best[kind] = min(by_strength, key=by_strength.__getitem__)
    for seed in SEEDS:
        run('none', seed, '', 0.0)
        for kind in KINDS:
            run(f'{kind} {best[kind]:g}', seed, kind, best[kind])
    coverage = {}
    for kind in KINDS:
        coverage[kind] = (lists[kind].ids_VxL[:, 0] != np.arange(len(data.vocabulary))).mean()
    words = paired.band_words(data)
    record.write({'best': best, 'coverage': {k: float(v) for k, v in coverage.items()}, 'band_words': words})
    for seed in SEEDS:
        for kind in KINDS:
            run(f'{kind} shuffled {best[kind]:g}', seed, f'{kind} shuffled {seed}', best[kind])


def compared(content: dict[str, Any]) -> list[str]:
    """Returns the names of the runs with three seeds, which are compared with the runs without a prior."""
    names = [f'{kind}{how} {content["best"][kind]:g}' for kind in KINDS for how in ('', ' shuffled')]
    return [name for name in names if all(f'{name}, seed {seed}' in content['runs'] for seed in SEEDS)]


def make_tables(content: dict[str, Any]) -> str:
    """Returns the tables of strengths, seeds and bands."""
    runs = content['runs']
    grid = [[f'{s:g}', *(runs[f'{kind} {s:g}, seed 1']['valid'] for kind in KINDS)] for s in STRENGTHS]
    grid.insert(0, ['none', *[runs['none, seed 1']['valid']] * len(KINDS)])
    rows: list[list[Any]] = []
    for name in ('none', *compared(content)):
        perplexities = [paired.mean_and_spread([r[s] for r in paired.seeds_of(content, name)]) for s in paired.SPLITS]
        change = paired.mean_and_spread(paired.gains(content, name, 'none'), 2) if name != 'none' else ''
        rows.append([name, *perplexities, change])
    tables = [
        markdown_table(['strength', *(f'{kind}: valid, seed 1' for kind in KINDS)], grid),
        markdown_table(['prior', 'valid', 'test', 'change of test, %'], rows),
    ]
    for by, header in (('predicted', 'occurrences of the word'), ('before', 'occurrences of the word before')):
        lines = []
        for i, (low, high) in enumerate(BANDS):
            changes = [
                paired.mean_and_spread(paired.band_gains(content, name, 'none', by, i), 2) for name in compared(content)
            ]
            band = f'{low}' if low == high else f'{low} to {high}' if high < 10**9 else f'{low} or more'
            lines.append([band, f'{content["band_words"][by][i]:,}', *changes])
        tables.append(markdown_table([header, 'test words', *compared(content)], lines))
    return '\n\n'.join(tables)


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_argument(
        '--lists',
        metavar='DIR',
        help='folder to write the lists of related words to; default: measure the priors instead',
    )


def main(flags: study.Flags) -> None:
    """Writes the lists if requested. Otherwise, measures the priors and prints the tables."""
    if flags.lists:
        folder = expand('--lists', flags.lists)
        folder.mkdir(parents=True, exist_ok=True)
        write_lists(paired.load_data(), folder)
        return
    process.set_up_process()
    with tempfile.TemporaryDirectory() as name:
        measure(paired.Record(RESULTS / 'priors.json', MODULE), pathlib.Path(name))
    print(study.shown(show, flags))


def show(_: study.Flags) -> str:
    """Returns the tables of the committed results."""
    return make_tables(results.read(RESULTS, 'priors'))


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show)
