"""Prints speed against perplexity of the cheaper gradients, from the committed results.

python -m experiments.cheaper.table
"""

import pathlib
from typing import Any

from configs import brown
from experiments import results
from experiments.cheaper.points import POINTS, get_config
from nplm_jax import config as config_lib
from nplm_jax.runs import sweeps
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.text import markdown_table

RESULTS = pathlib.Path(__file__).parent / 'results'
FULL = pathlib.Path(__file__).parents[1] / 'table1' / 'results'
HEADER = ['output.kind', 'samples', 'head', 'classes', 'epochs', 'words/s', 'seconds', 'valid', 'test']


def rows() -> list[list[Any]]:
    """The row itself, then the points. Raises: BadInput for a result that is missing or another run's."""
    points = [_row(results.read(RESULTS, name), {'name': name, **overrides}) for name, overrides in POINTS.items()]
    return [_row(results.read(FULL, 'mlp9'), {}), *points]


def _row(found: dict[str, Any], overrides: dict[str, Any]) -> list[Any]:
    wanted = config_lib.from_config(sweeps.apply(get_config('mlp9'), overrides).config)
    output = wanted.output
    num_classes = output.num_classes(brown.VOCABULARY)
    samples = output.samples if output.kind in ('sampled', 'nce') else '-'
    classes = [output.num_shortlist, num_classes] if output.kind == 'two_level' else ['-', '-']
    parameters = wanted.model.num_parameters(brown.VOCABULARY, num_classes)
    if (found['name'], found['parameters']) != (wanted.name, parameters):
        raise BadInput(f'{wanted.name}: the committed results are of another run, {found["name"]}')
    cost = [f'{found["words_per_second"]:,}', f'{found["seconds"]:.0f}']
    perplexities = [found['perplexity'][split] for split in ('valid', 'test')]
    return [output.kind, samples, *classes, wanted.train.epochs, *cost, *perplexities]


if __name__ == '__main__':
    results.show(lambda: markdown_table(HEADER, rows()))
