"""Prints the paper's Table 1 and our results, from the committed files.

    python -m experiments.paper.table1.table [--short | --seeds | --figure]

results/ROW.json is the results.json of `python launch.py --config=configs/brown.py:ROW`; `default` is
`configs/brown.py` without a row, and `mlp9_paper` is `mlp9,paper` with sums over 128 words. --short prints only the
networks, --seeds prints the rows with several seeds (ROW_seedN.json, from seeds.py), and --figure draws the table.
"""

from __future__ import annotations

import functools
import math
import pathlib
import statistics
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from configs import brown
from experiments import results, study
from experiments.paper.table1.seeds import SEEDED, SEEDS
from nplm_jax.models import nplm
from nplm_jax.reporting.text import markdown_table, save_figure
from nplm_jax.utils.errors import BadInput

HERE = pathlib.Path(__file__).parent
SECTION5 = results.folder('section5')
MIXTURES = {  # the paper's networks, mixed with the trigram: valid, test
    'mlp1': ('MLP2', 275.0, 257.0),
    'mlp3': ('MLP4', 286.0, 272.0),
    'mlp5': ('MLP6', 273.0, 259.0),
    'mlp7': ('MLP8', 284.0, 270.0),
    'mlp9': ('MLP10', 265.0, 252.0),
}
SHAPE = ['', 'n', 'c', 'h', 'm', 'direct', 'mixed']
HEADER = [*SHAPE, 'train', 'valid', 'test', 'paper: train', 'valid', 'test', 'ratio', 'paper', 'bits']
SHORT_HEADER = ['network', 'paper: valid', 'test', 'here: valid', 'test', 'mixed: valid', 'test', 'minutes', 'words/s']


OTHERS = {'default': '', 'large': 'large'}  # networks not in the paper, and their presets of configs/brown.py
SEEDS_HEADER = ['network', 'seeds', 'valid', 'mean', 'spread', 'test', 'mean', 'spread']


def result(row: str, config: ConfigDict, seed: int = 1) -> dict[str, Any]:
    """Returns the committed results of a row. Raises BadInput if they are missing or belong to another run."""
    recorded, model = results.read(HERE / 'results', row), config.model
    is_named = recorded['name'] in (config.name, f'seed={seed}', f'seed_{seed}')  # as the row, or as a point of a sweep
    size = None
    if model.family == 'nplm':
        size = nplm.num_parameters(model.n, model.m, model.h, model.direct, brown.VOCABULARY)
    if not is_named or (recorded.get('parameters'), recorded['seed']) != (size, seed):
        raise BadInput(
            f'results/{row}.json',
            f'contains the results of another run, {recorded["name"]} with seed {recorded["seed"]}',
        )
    return recorded


def bits_per_character(perplexity: float, spelled: Mapping[str, Any]) -> float:
    """Returns the bits per character of all test words. The character 8-gram spells the unknown words.

    Spelling adds the same cost to all models with the same vocabulary, so only the perplexity of the model is needed.

    Args:
        perplexity: The test perplexity of a model that treats <rare> as one word.
        spelled: A row of section5/results/open_vocabulary.json with the same vocabulary.
    """
    words_per_character = spelled['words'] / spelled['characters']
    spelling = spelled['bits_ngram'] - words_per_character * math.log2(spelled['closed_perplexity'])
    return words_per_character * math.log2(perplexity) + spelling


def rows() -> list[list[Any]]:
    """Returns one row per model and per mixture.

    Ratios are test perplexities divided by the perplexity of the 5-gram Kneser-Ney back-off model.
    """
    reference = results.read(HERE / 'results', 'kneser_ney_5')['perplexity']['test']
    paper_reference = brown.PAPER['kneser_ney_5'][2]
    spelled = results.read(SECTION5, 'open_vocabulary')['rows'][0]
    bits = functools.partial(bits_per_character, spelled=spelled)

    def line(name: str, shape: list[Any], mixed: str, ours: list[Any], paper: list[float]) -> list[Any]:
        printed = [f'{p:.0f}' if p else '-' for p in paper]
        ratio = f'{paper[2] / paper_reference:.2f}' if paper[2] else '-'
        return [name, *shape, mixed, *ours, *printed, f'{ours[2] / reference:.2f}', ratio, f'{bits(ours[2]):.3f}']

    table = []
    for row in (*brown.NETWORKS, 'mlp9,paper', *OTHERS, *(r for r in brown.TABLE1 if r not in brown.NETWORKS)):
        config = brown.get_config(OTHERS.get(row, row))
        model = config.model
        ours = result(row.replace(',', '_'), config)
        splits = [ours['perplexity'][s] for s in ('train', 'valid', 'test')]
        paper = [config.paper[s] for s in ('train', 'valid', 'test')]
        if model.family != 'nplm':
            name = config.paper.row or 'modified Kneser-Ney'
            classes = config.model.classes if model.family == 'classes' else '-'
            table.append(line(name, [model.n, classes, '-', '-', '-'], '', splits, paper))
            continue
        shape = [model.n, '-', model.h, model.m, 'yes' if model.direct else 'no']
        network, _, recipe = row.partition(',')
        recipe = ", paper's recipe" if recipe else ''
        table.append(line((network if row in OTHERS else network.upper()) + recipe, shape, 'no', splits, paper))
        name, *paper_mixed = MIXTURES.get(network, (network, 0.0, 0.0))
        name += recipe
        for kind, mixed in ours['mixture'].items():
            paper = [0.0, *paper_mixed] if kind == 'fixed' else [0.0] * 3
            table.append(line(name, shape, kind.replace('_', ' '), ['-', mixed['valid'], mixed['test']], paper))
    return table


def short() -> list[list[Any]]:
    """Returns only the rows of the networks, with their cost and their best mixture with the trigram."""
    table = []
    for row in (*brown.NETWORKS, *OTHERS):
        config = brown.get_config(OTHERS.get(row, row))
        ours = result(row, config)
        paper = [f'{config.paper[s]:.0f}' if config.paper[s] else '-' for s in ('valid', 'test')]
        mixed = ours['mixture']['by_frequency']
        cost = [f'{ours["seconds"] / 60:.0f}', f'{ours["words_per_second"]:,}']
        perplexities = [*(ours['perplexity'][s] for s in ('valid', 'test')), mixed['valid'], mixed['test']]
        name = config.paper.row or f'{row}: n={config.model.n} h={config.model.h} m={config.model.m}, no direct'
        table.append([name, *paper, *perplexities, *cost])
    return table


def seeds() -> list[list[Any]]:
    """Returns the perplexity of each seed, their mean, and their range (largest minus smallest)."""
    table = []
    for row in SEEDED:
        config = brown.get_config(row)
        runs = [result(row, config), *(result(f'{row}_seed{seed}', config, seed) for seed in SEEDS)]
        cells = []
        for split in ('valid', 'test'):
            each = [run['perplexity'][split] for run in runs]
            cells += [', '.join(f'{p:.1f}' for p in each), statistics.mean(each), max(each) - min(each)]
        table.append([row.upper(), ', '.join(str(run['seed']) for run in runs), *cells])
    return table


def draw(path: pathlib.Path) -> None:
    """Draws our test perplexities and the paper's, both relative to the Kneser-Ney 5-gram on the same words."""
    import matplotlib.figure  # noqa: PLC0415 (only --figure needs it)

    lines = [r for r in rows() if r[6] in ('', 'no', 'fixed')][::-1]
    names = [
        ' '.join(str(x) for x in (r[0], f'n={r[1]}', '' if r[2] == '-' else f'c={r[2]}', r[6].replace('no', '')))
        for r in lines
    ]
    axes = (figure := matplotlib.figure.Figure(figsize=(7, 8), layout='constrained')).subplots()
    for column, label, marker in ((-2, 'here', 'o'), (-1, 'the paper', 'x')):
        points = [(float(r[column]), i) for i, r in enumerate(lines) if r[column] != '-']
        axes.plot(*zip(*points), marker, label=label)
    axes.axvline(1, color='grey', linestyle=':')
    axes.set_yticks(range(len(lines)), names)
    axes.set(xlabel="test perplexity / 5-gram Kneser-Ney back-off's on the same words", title='Table 1, Brown')
    axes.grid(alpha=0.3, axis='x')
    axes.legend()
    save_figure(figure, path, dpi=110)


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_switch('--short', 'print only the rows of the networks, with their training costs')
    parser.add_switch('--figure', 'also draw table1.png')
    parser.add_switch('--seeds', 'print the rows that have results for several seeds')


def show(flags: study.Flags) -> str:
    """Returns a table. Draws the figure if requested."""
    if flags.figure:
        draw(HERE / 'table1.png')
    if flags.seeds:
        return markdown_table(SEEDS_HEADER, seeds())
    return markdown_table(SHORT_HEADER, short()) if flags.short else markdown_table(HEADER, rows())


if __name__ == '__main__':
    study.run(__doc__, define=define, show=show)
