"""Prints the speed and perplexity of networks trained with cheaper gradients, from the committed results.

python -m experiments.beyond.cheaper.table
"""

from __future__ import annotations

import pathlib
from typing import Any

from configs import brown
from experiments import results, study
from experiments.beyond.cheaper.points import POINTS, get_config
from nplm_jax.config.settings import override
from nplm_jax.outputs.two_level import TwoLevelSoftmax
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs.experiment import load_settings
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.utils.errors import BadInput

RESULTS = pathlib.Path(__file__).parent / 'results'
FULL = results.folder('table1')
HEADER = ['output.kind', 'samples', 'shortlist', 'classes', 'epochs', 'words/s', 'seconds', 'valid', 'test']


def rows() -> list[list[Any]]:
    """Returns the row `full` and the points. Raises BadInput if a result is missing or belongs to another run."""
    points = [_row(results.read(RESULTS, name), {'name': name, **overrides}) for name, overrides in POINTS.items()]
    return [_row(results.read(FULL, 'mlp9'), {}), *points]


def _row(recorded: dict[str, Any], overrides: dict[str, Any]) -> list[Any]:
    settings = load_settings(override(get_config('mlp9'), overrides))
    network = network_from_settings(settings, brown.VOCABULARY)
    if (recorded['name'], recorded['parameters']) != (settings.name, network.num_parameters()):
        raise BadInput(settings.name, f'the committed results are those of another run, {recorded["name"]}')
    output, layer = settings.output, network.output
    samples = output.samples if output.name in ('sampled', 'nce') else '-'
    classes = [layer.num_shortlist, layer.num_classes] if isinstance(layer, TwoLevelSoftmax) else ['-', '-']
    cost = [f'{recorded["words_per_second"]:,}', f'{recorded["seconds"]:.0f}']
    perplexities = [recorded['perplexity'][split] for split in ('valid', 'test')]
    return [output.name, samples, *classes, settings.train.epochs, *cost, *perplexities]


if __name__ == '__main__':
    study.run(__doc__, show=lambda _: markdown_table(HEADER, rows()))
