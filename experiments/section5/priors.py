"""Prior knowledge of which words are alike: WordNet's relations and parts of speech, by a penalty on C.

    python -m experiments.section5.priors           measures what results/priors.json lacks, and prints the tables
    python -m experiments.section5.priors --show    prints the tables of the committed results
    python -m experiments.section5.priors --page    writes them into priors.md

The strength of each prior is that of the grid which is best on validation with seed 1. In `shuffled` each word has the
neighbours of another word, drawn by the seed: what then remains is no knowledge.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments import results
from experiments.section5 import paired
from experiments.section5.paired import BANDS, SEEDS
from nplm_jax.data.neighbours import Neighbours, make_neighbours
from nplm_jax.runs import process
from nplm_jax.training.loop import TrainingRun
from nplm_jax.utils.text import markdown_table

RESULTS = pathlib.Path(__file__).parent / 'results'
KINDS = ('wordnet', 'tags')
STRENGTHS = (1e-4, 1e-3)
MODULE = 'experiments.section5.priors'


def shuffle(run: TrainingRun) -> TrainingRun:
    """Returns the run with the neighbours of another word for each word that has some."""
    ids_VxL, weights_VxL = map(np.array, run.inputs.neighbours)
    (has_neighbours,) = np.nonzero(ids_VxL[:, 0] != np.arange(len(ids_VxL)))
    others = np.random.default_rng(run.settings.seed).permutation(has_neighbours)
    ids_VxL[has_neighbours], weights_VxL[has_neighbours] = ids_VxL[others], weights_VxL[others]
    neighbours = Neighbours(jnp.asarray(ids_VxL), jnp.asarray(weights_VxL))
    return dataclasses.replace(run, inputs=dataclasses.replace(run.inputs, neighbours=neighbours))


def measure(record: paired.Record) -> None:
    """Trains all networks that the record lacks."""
    data = paired.load_data()

    def run(name: str, seed: int, kind: str, strength: float, change: paired.Change = lambda run: run) -> Any:
        keys = {'seed': seed, 'prior.kind': kind, 'prior.strength': strength}
        return record.add(name, seed, lambda: paired.measure(paired.quick(keys), data, change)[1])

    run('none', 1, 'none', 0.0)
    best = {}
    for kind in KINDS:
        by_strength = {s: run(f'{kind} {s:g}', 1, kind, s)['valid'] for s in STRENGTHS}
        best[kind] = min(by_strength, key=by_strength.__getitem__)
    for seed in SEEDS:
        run('none', seed, 'none', 0.0)
        for kind in KINDS:
            run(f'{kind} {best[kind]:g}', seed, kind, best[kind])
    coverage = {}
    for kind in KINDS:
        neighbours = make_neighbours(paired.quick({'prior.kind': kind}), data)
        assert neighbours is not None
        coverage[kind] = (neighbours.ids_VxL[:, 0] != np.arange(len(data.vocabulary))).mean()
    words = paired.band_words(data)
    record.write({'best': best, 'coverage': {k: float(v) for k, v in coverage.items()}, 'band_words': words})
    for seed in SEEDS:
        for kind in KINDS:
            run(f'{kind} shuffled {best[kind]:g}', seed, kind, best[kind], shuffle)


def compared(content: dict[str, Any]) -> list[str]:
    """Returns the names of the runs that are compared with no prior: those with three seeds."""
    names = [f'{kind}{how} {content["best"][kind]:g}' for kind in KINDS for how in ('', ' shuffled')]
    return [name for name in names if all(f'{name}, seed {seed}' in content['runs'] for seed in SEEDS)]


def make_tables(content: dict[str, Any]) -> str:
    """Returns the table of the strengths, the table of the seeds, and those of the bands."""
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
            change = [
                paired.mean_and_spread(paired.band_gains(content, name, 'none', by, i), 2) for name in compared(content)
            ]
            band = f'{low}' if low == high else f'{low} to {high}' if high < 10**9 else f'{low} or more'
            lines.append([band, f'{content["band_words"][by][i]:,}', *change])
        tables.append(markdown_table([header, 'test words', *compared(content)], lines))
    return '\n\n'.join(tables)


def main() -> None:
    """Measures unless told only to show, and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--show', action='store_true', help='print the tables of the existing results')
    parser.add_argument('--page', action='store_true', help='write them into priors.md')
    flags = parser.parse_args()
    if not (flags.show or flags.page):
        process.set_up_process()
        measure(paired.Record(RESULTS / 'priors.json', MODULE))
    results.show(lambda: make_tables(results.read(RESULTS, 'priors')))
    if flags.page:
        paired.write_tables(RESULTS.parent / 'priors.md', {'tables': make_tables(results.read(RESULTS, 'priors'))})


if __name__ == '__main__':
    main()
