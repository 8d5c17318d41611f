"""Prints Table 1, the paper's beside ours, from the committed results.

    python -m experiments.table1.table

results/ROW.json is the results.json of `python launch.py --config=configs/brown.py:ROW`.
"""

import pathlib

from configs import brown
from experiments import results
from nplm_jax.reporting import table

RESULTS = pathlib.Path(__file__).parent / 'results'


def rows() -> list[list]:
    """One row a network. Raises: BadInput when a row's JSON is missing."""
    found = []
    for row in (*brown.ROWS, ''):
        config = brown.get_config(row)
        ours = results.read(RESULTS, row or 'best')
        model = config.model
        found.append([
            row.upper() or 'ours', model.n, model.h, model.m, 'yes' if model.direct else 'no',
            *(f'{config.paper[s]:.0f}' if row else '-' for s in ('train', 'valid', 'test')),
            *(ours['perplexity'][s] for s in ('train', 'valid', 'test')),
            round(ours['seconds'] / 60, 1), f'{ours["words_per_second"]:,}',
        ])  # fmt: skip
    return found


def make() -> str:
    """The table."""
    perplexities = ['paper: train', 'valid', 'test', 'here: train', 'valid', 'test']
    return table(['row', 'n', 'h', 'm', 'direct', *perplexities, 'minutes', 'words/s'], rows())


if __name__ == '__main__':
    results.show(make)
