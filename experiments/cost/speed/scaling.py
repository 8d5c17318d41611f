"""Measures the cost of a training word by |V| and batch size, for nplm-jax and plain JAX alternately.

    python -m experiments.cost.speed.scaling [--axes=vocabulary,batch] [--rounds=3] [--work=60]
    python -m experiments.cost.speed.scaling --quick  a check: two batches, whose losses must agree
    python -m experiments.cost.speed.scaling --show   the tables of the committed results, nothing measured

Writes results/scaling.json and .png and prints the tables. The network is MLP9: n=5, h=100, m=30.
"""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from configs import brown
from experiments import results, study
from experiments.cost.speed import contestants, problem
from experiments.sources import of_module
from nplm_jax.reporting.text import markdown_table, save_figure

HERE = pathlib.Path(__file__).parent
# The axes that vary, and their values.
AXES = {'vocabulary': [2**i for i in (10, 12, 14, 16, 18)], 'batch': [1, 8, 32, 128, 512, 2048]}
FIXED = {'vocabulary': 16_384, 'batch': 512}  # the value of each axis while the other one varies
RACED = ('ours', 'plain_jax')
LIMIT = 2 * 2**30  # bytes of B x |V| float32 scores above which plain JAX is skipped


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_names('--axes', AXES, 'axes to vary')
    problem.add_precisions(parser)
    parser.add_count('--rounds', 3, 'number of timed turns of each contestant')
    parser.add_count(
        '--block_size',
        0,
        'number of examples per block of scores in nplm-jax; 0 means the value in the config',
        least=0,
    )
    work = 'work of the matrix products in a turn [Gflop]; a turn has 2 to 50 updates'
    parser.add_argument('--work', type=study.positive(float), default=60.0, metavar='N', help=work)
    parser.add_output_path(HERE / 'results' / 'scaling.json')
    parser.add_quick(axes=['batch'], rounds=1, work=0.1, output='runs/quick/scaling.json')


def point(flags: study.Flags, V: int, B: int, precisions: Sequence[str]) -> dict[str, list[float]]:
    """Returns the words per second of each turn, by contestant and precision, at one size."""
    flops = 6 * V * 100 * B
    S = int(np.clip(flags.work * 1e9 / flops, 2, 50))
    config = brown.get_config('mlp9')
    if flags.quick:
        config = problem.without_dropout(config)
    shared = problem.make_problem(config, V, B, S, flags.rounds + 1, flags.block_size)
    names = [name for name in RACED if name == 'ours' or 4 * B * V <= LIMIT]
    turns = {(name, p): contestants.find(name)(shared, p) for p in precisions for name in names}
    if flags.quick:
        problem.check_losses(turns)
    seconds = problem.alternate(turns, flags.rounds)
    return {', '.join(entry): [round(S * B / s, 1) for s in turn_seconds] for entry, turn_seconds in seconds.items()}


def _names(points: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for p in points for name in p['words_per_second']))


def make_tables(measured: dict[str, Any]) -> str:
    """Returns one table per axis, with the medians of microseconds per word and words per second."""
    tables = []
    for axis, points in measured['axes'].items():
        names = _names(points)
        lines = []
        for p in points:
            rates = [np.median(p['words_per_second'].get(name, [np.nan])) for name in names]
            cells = [f'{1e6 / r:,.0f} ({r:,.0f})' if np.isfinite(r) else '-' for r in rates]
            lines.append([f'{p[axis]:,}', *cells])
        tables.append(markdown_table([axis, *(f'{name}: µs a word (words/s)' for name in names)], lines))
    return '\n\n'.join([*tables, f'On {measured["device"]}, load {measured["load_before"]:.1f} before.'])


def draw(measured: dict[str, Any], path: pathlib.Path) -> None:
    """Draws one panel per axis with logarithmic scales: microseconds per word, medians over the rounds."""
    import matplotlib.figure  # noqa: PLC0415 (slow to import, needed only at the end)
    import matplotlib.ticker  # noqa: PLC0415

    figure = matplotlib.figure.Figure(figsize=(5 * len(measured['axes']), 4), layout='constrained')
    panels = figure.subplots(1, len(measured['axes']), squeeze=False)[0]
    for panel, (axis, points) in zip(panels, measured['axes'].items()):
        for name in _names(points):
            rates = {p[axis]: p['words_per_second'][name] for p in points if name in p['words_per_second']}
            panel.plot(list(rates), [1e6 / np.median(r) for r in rates.values()], 'o-', label=name, markersize=4)
        fixed = ', '.join(f'{name} {value:,}' for name, value in FIXED.items() if name != axis)
        panel.set(xlabel=axis, ylabel='microseconds a word', title=fixed, xscale='log', yscale='log')
        values = [p[axis] for p in points]
        panel.set_xticks(values, [f'{v:,}' for v in values])
        panel.set_xticks([], minor=True)
        panel.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter('{x:,.0f}')
        panel.set_yticks([], minor=True)
        panel.grid(alpha=0.3, which='both')
        panel.legend()
    save_figure(figure, path)


def measure(flags: study.Flags) -> Iterator[dict[str, Any]]:
    """Yields the content of scaling.json after each point."""
    problem.set_up()
    facts = {'rounds': flags.rounds, 'load_before': os.getloadavg()[0]}
    facts |= of_module('experiments.cost.speed.scaling')
    axes: dict[str, list[dict[str, Any]]] = {}
    precisions = problem.precisions(flags)
    for axis in flags.axes:
        axes[axis] = []
        for value in AXES[axis][: 2 if flags.quick else None]:
            size = {**FIXED, axis: value}
            rates = point(flags, size['vocabulary'], size['batch'], precisions)
            axes[axis].append({axis: value, 'words_per_second': rates})
            print(f'{axis} {value:,} measured', file=sys.stderr)
            yield {**facts, 'axes': axes}


def main(flags: study.Flags) -> None:
    """Measures the points, draws the figure and prints the tables."""
    results.write_each(flags.output, measure(flags))
    draw(problem.recorded(flags), flags.output.with_suffix('.png'))
    print(show(flags))


def show(flags: study.Flags) -> str:
    """Returns the tables for the results file."""
    return make_tables(problem.recorded(flags))


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show)
