"""Compares recurrent networks with window networks and count-based models, from the committed results.

    python -m experiments.beyond.recurrent.table

results/FAMILY.json is the results.json of `python launch.py --config=configs/brown.py:FAMILY`, and
results/mixture.json is the output of `nplm mix`.
"""

from __future__ import annotations

import pathlib
from typing import Any

from configs import brown
from experiments import results, study
from nplm_jax.cli import mix
from nplm_jax.config.registry import is_neural
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs import experiment
from nplm_jax.utils.errors import BadInput

RESULTS = pathlib.Path(__file__).parent / 'results'
TABLE_1 = results.folder('table1')
OTHERS = 'mlp9', 'large', 'modified_kneser_ney_5'  # of Table 1
HEADER = ['model', 'm', 'h', 'epochs', 'train', 'valid', 'test', 'mixed: valid', 'test', 'minutes', 'words/s']


def rows() -> list[list[Any]]:
    """Returns count-based, window and recurrent models. Raises BadInput if results are missing or of another run."""
    others = [_row(row, results.read(TABLE_1, row)) for row in reversed(OTHERS)]
    return [*others, *(_row(row, results.read(RESULTS, row)) for row in brown.RECURRENT)]


def _row(row: str, recorded: dict[str, Any]) -> list[Any]:
    settings = experiment.load_settings(brown.get_config(row))
    if recorded['name'] != settings.name:
        raise BadInput(settings.name, f'the committed results are those of another run, {recorded["name"]}')
    perplexities = [recorded['perplexity'][s] for s in ('train', 'valid', 'test')]
    if not is_neural(settings.model.name):
        return [row, '-', '-', '-', *perplexities, *['-'] * 4]
    mixed = recorded['mixture']['by_frequency']
    shape = [settings.model.m, settings.model.h, f'{recorded["epochs"]:.0f}']
    cost = [f'{recorded["seconds"] / 60:.0f}', f'{recorded["words_per_second"]:,}']
    return [row, *shape, *perplexities, mixed['valid'], mixed['test'], *cost]


def make() -> str:
    """Returns both tables."""
    return markdown_table(HEADER, rows()) + '\n\n' + mix.make_table(results.read(RESULTS, 'mixture'))


if __name__ == '__main__':
    study.run(__doc__, show=lambda _: make())
