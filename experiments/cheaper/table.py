"""Prints speed against perplexity of the cheaper gradients, from the committed results.

python -m experiments.cheaper.table
"""

import pathlib
from typing import Any

from experiments import results
from experiments.cheaper.points import POINTS, get_config
from nplm_jax import settings, sweeps
from nplm_jax.errors import BadInput
from nplm_jax.reporting import table

RESULTS = pathlib.Path(__file__).parent / 'results'
FULL = pathlib.Path(__file__).parents[1] / 'table1' / 'results'
HEADER = ['output.kind', 'samples', 'proposal', 'head', 'classes', 'epochs', 'words/s', 'seconds', 'valid', 'test']


def rows() -> list[list[Any]]:
    """The row itself, then the points. Raises: BadInput for a result that is missing or another run's."""
    points = [_row(results.read(RESULTS, name), {'name': name, **keys}) for name, keys in POINTS.items()]
    return [_row(results.read(FULL, 'mlp9'), {}), *points]


def _row(found: dict[str, Any], overrides: dict[str, Any]) -> list[Any]:
    wanted = settings.from_config(sweeps.apply(get_config('mlp9'), overrides).config)
    output, size = wanted.output, found['vocabulary']
    num_classes = output.num_classes(size)
    if found['name'] != wanted.name or found['parameters'] != wanted.model.num_parameters(size, num_classes):
        raise BadInput(f'{wanted.name}: the committed results are of another run, {found["name"]}')
    drawn = [output.samples, output.proposal] if output.kind in ('sampled', 'nce') else ['-', '-']
    classes = [output.head, num_classes] if output.kind == 'classes' else ['-', '-']
    cost = [f'{found["epochs"]:.0f}', f'{found["words_per_second"]:,}', f'{found["seconds"]:.0f}']
    return [output.kind, *drawn, *classes, *cost, found['perplexity']['valid'], found['perplexity']['test']]


if __name__ == '__main__':
    results.show(lambda: table(HEADER, rows()))
