"""Compares training updates with several block sizes of the exact loss (`output.block_size`), timed alternately.

    python -m experiments.cost.speed.blocks [--rows=mlp1,lstm]
    python -m experiments.cost.speed.blocks --quick     a check: small batches of one network
    python -m experiments.cost.speed.blocks --show      the table of the committed results, nothing measured

`nplm_jax.outputs.blockwise.default_block_size` contains the fastest sizes.
"""

from __future__ import annotations

import os
import pathlib
import statistics
from collections.abc import Iterator
from typing import Any

from experiments import study
from experiments.cost.speed import contestants, problem
from experiments.sources import of_module
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs.precision_choice import native_precision

RESULTS = pathlib.Path(__file__).parent / 'results' / 'blocks.json'
SIZES = [256, 128, 64, 512]  # the first is the reference


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_names('--rows', problem.ROWS, 'networks to train')
    parser.add_count('--batch', 512, 'number of words per update')
    parser.add_count('--steps', 6, 'number of updates per turn')
    parser.add_count('--rounds', 7, 'number of timed turns of each size')
    parser.add_output_path(RESULTS)
    small: dict[str, Any] = {'rows': ['mlp9'], 'batch': 128, 'steps': 2, 'rounds': 1}
    parser.add_quick(**small, output='runs/quick/blocks.json')


def measure(flags: study.Flags) -> Iterator[dict[str, Any]]:
    """Yields the results after each network."""
    problem.set_up()
    precision = native_precision()
    measured = {
        'batch': flags.batch,
        'precision': precision,
        'load': os.getloadavg()[0],
        **of_module('experiments.cost.speed.blocks'),
        'rows': (rows := dict[str, Any]()),
    }
    for row in flags.rows:
        make_config, V = problem.ROWS[row]
        problems = {
            str(size): problem.make_problem(make_config(), V, flags.batch, flags.steps, flags.rounds + 1, size)
            for size in SIZES
        }
        turns = {size: contestants.find('ours')(shared, precision) for size, shared in problems.items()}
        seconds = problem.alternate(turns, flags.rounds)
        rows[row] = {size: [flags.steps * flags.batch / s for s in seconds[size]] for size in turns}
        yield measured


def make_table(measured: dict[str, Any]) -> str:
    """Returns one line per network: the words per second with the first size, and the ratios of the others to it."""
    first, *others = next(iter(measured['rows'].values()))
    lines = []
    for row, of_sizes in measured['rows'].items():
        ratios = [statistics.median(a / b for a, b in zip(of_sizes[size], of_sizes[first])) for size in others]
        lines.append([row, f'{statistics.median(of_sizes[first]):,.0f}', *(f'{ratio:.2f}' for ratio in ratios)])
    table = markdown_table(['row', f'blocks of {first}: words/s', *(f'{size} / {first}' for size in others)], lines)
    about = f'Batch {measured["batch"]}, {measured["precision"]}, on {measured["device"]}, '
    about += f'load {measured["load"]:.1f} before.'
    return f'{table}\n\n{about}'


if __name__ == '__main__':
    main, show = problem.commands(measure, make_table)
    study.run(__doc__, define=define, measure=main, show=show)
