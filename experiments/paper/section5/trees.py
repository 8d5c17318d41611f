"""Trees of words against other outputs: perplexity of MLP9, and the speed of each output.

    python -m experiments.paper.section5.trees    the tables of the committed results

trees.md shows the launch.py commands that train the trees.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

import numpy as np

from experiments import results, study
from nplm_jax.reporting.text import markdown_table

RESULTS = pathlib.Path(__file__).parent / 'results'
TREES = 'random', 'huffman', 'wordnet', 'clusters', 'two_codes'
ROWS = {  # output -> folder and file name of its results
    'full': (results.folder('table1'), 'mlp9'),
    'two_level': (results.folder('cheaper'), 'classes_1000_500'),
    'sampled': (results.folder('cheaper'), 'sampled_1000'),
    'nce': (results.folder('cheaper'), 'nce_1000'),
    **{f'tree, {name}': (RESULTS, f'tree_{name}') for name in TREES},
}
HEADER = ['output', 'nodes a word', 'epochs', 'seconds', 'valid', 'test']


def table(_: study.Flags) -> str:
    """Returns the tables of the trained networks and of the speeds."""
    lines = []
    for name, file in ROWS.items():
        r = results.read(*file)
        nodes = f'{r["nodes"]:.1f}' if 'nodes' in r else '-'
        perplexities = [f'{r["perplexity"][split]:.1f}' for split in ('valid', 'test')]
        lines.append([name, nodes, f'{r["epochs"]:.0f}', f'{r["seconds"]:,.0f}', *perplexities])
    rates: Mapping[str, Mapping[str, list[int]]] = results.read(RESULTS, 'tree_speed')['words_per_second']
    first = {size: np.median(by['full']) for size, by in rates.items()}
    times = [
        [name, *(f'{np.median(by[name]):,.0f} ({np.median(by[name]) / first[size]:.1f})' for size, by in rates.items())]
        for name in next(iter(rates.values()))
    ]
    header = ['output', *(f'words/s, |V| = {int(size):,}' for size in rates)]
    return f'{markdown_table(HEADER, lines)}\n\n{markdown_table(header, times)}'


if __name__ == '__main__':
    study.run(__doc__, show=table)
