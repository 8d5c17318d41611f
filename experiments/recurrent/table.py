"""Prints the recurrent networks beside the window and the counts, from the committed results.

    python -m experiments.recurrent.table

results/FAMILY.json is the results.json of `python launch.py --config=configs/brown.py:FAMILY`, results/mixture.json
what `python -m nplm_jax.cli mix` wrote.
"""

import pathlib
from typing import Any

from configs import brown
from experiments import results
from nplm_jax import config as config_lib
from nplm_jax.cli import mix
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.text import markdown_table

RESULTS = pathlib.Path(__file__).parent / 'results'
TABLE_1 = pathlib.Path(__file__).parents[1] / 'table1' / 'results'
OTHERS = {'mlp9': 'mlp9', '': 'best', 'modified_kneser_ney_5': 'modified_kneser_ney_5'}  # row: its file there
HEADER = ['model', 'm', 'h', 'epochs', 'train', 'valid', 'test', 'mixed: valid', 'test', 'minutes', 'words/s']


def rows() -> list[list[Any]]:
    """Counts, windows, recurrences. Raises: BadInput for a result that is missing or another run's."""
    others = [_row(row, results.read(TABLE_1, file)) for row, file in reversed(OTHERS.items())]
    return [*others, *(_row(row, results.read(RESULTS, row)) for row in brown.RECURRENT)]


def _row(row: str, found: dict[str, Any]) -> list[Any]:
    wanted = config_lib.from_config(brown.get_config(row))
    if found['name'] != wanted.name:
        raise BadInput(f'{wanted.name}: the committed results are of another run, {found["name"]}')
    perplexities = [found['perplexity'][s] for s in ('train', 'valid', 'test')]
    if not wanted.model.is_network:
        return [row, '-', '-', '-', *perplexities, *['-'] * 4]
    mixed = found['mixture']['by_frequency']
    shape = [wanted.model.m, wanted.model.h, f'{found["epochs"]:.0f}']
    cost = [f'{found["seconds"] / 60:.0f}', f'{found["words_per_second"]:,}']
    return [row or 'best', *shape, *perplexities, mixed['valid'], mixed['test'], *cost]


def make() -> str:
    """Both tables."""
    return markdown_table(HEADER, rows()) + '\n\n' + mix.make_table(results.read(RESULTS, 'mixture'))


if __name__ == '__main__':
    results.show(make)
