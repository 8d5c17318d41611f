"""Compares the energy network with MLP9, both with the same m and h and with the same number of parameters.

    python -m experiments.paper.section5.energy    prints the table of the committed results

energy.md shows the launch.py commands that train the networks.
"""

from __future__ import annotations

import pathlib

from experiments import results, study
from nplm_jax.reporting.text import markdown_table

RESULTS = pathlib.Path(__file__).parent / 'results'
TABLE1 = results.folder('table1')
HEADER = ['network', 'parameters', 'epochs', 'training s', 'words/s', 'evaluation s', 'train', 'valid', 'test']
ROWS = {
    'MLP9, exact loss': (TABLE1, 'mlp9'),
    'energy, m=30 h=100 as MLP9': (RESULTS, 'energy_same'),
    'energy, m=130 h=100': (RESULTS, 'energy_equal'),
}


def table(_: study.Flags) -> str:
    """Returns one row per network. The evaluation time covers all evaluations after training."""
    lines = []
    for name, (folder, row) in ROWS.items():
        r = results.read(folder, row)
        numbers = [f'{r[key]:,.0f}' for key in ('parameters', 'epochs', 'seconds', 'words_per_second')]
        perplexities = [f'{r["perplexity"][split]:.1f}' for split in ('train', 'valid', 'test')]
        lines.append([name, *numbers, f'{r["evaluation_seconds"]:,.0f}', *perplexities])
    return markdown_table(HEADER, lines)


if __name__ == '__main__':
    study.run(__doc__, show=table)
