"""How the cost of training a word grows with |V| and with the batch: ours against plain JAX, alternating.

    python -m experiments.speed.scaling [--axes=vocabulary,batch] [--rounds=3] [--work=60]
    python -m experiments.speed.scaling --show   the tables of the committed results, nothing measured

Writes results/scaling.json and .png and prints the tables. The network is MLP9: n=5, h=100, m=30.
"""

from __future__ import annotations

import os
import pathlib
import shlex
import sys
from typing import Any

import numpy as np
from absl import app, flags

from configs import brown
from experiments import results
from experiments.speed import contestants
from nplm_jax.runs import provenance
from nplm_jax.utils.text import markdown_table, save_figure

HERE = pathlib.Path(__file__).parent
# What is varied, and its values. Devices would stand here too, once training runs on several: a value a count of
# devices, measured by `point` on a mesh of as many.
AXES = {'vocabulary': [2**i for i in (10, 12, 14, 16, 18)], 'batch': [1, 8, 32, 128, 512, 2048]}
FIXED = {'vocabulary': 16_384, 'batch': 512}  # of each axis while another one is varied
RACED = [('ours', 'float32'), ('ours', 'bfloat16'), ('plain_jax', 'float32')]
LIMIT = 2 * 2**30  # bytes of float32 scores, B x |V|: beyond them plain JAX is left out

_AXES = contestants.define_several('axes', AXES, 'What to vary')
_ROUNDS = flags.DEFINE_integer('rounds', 3, 'Turns of each contestant that count.')
_BLOCK = flags.DEFINE_integer('block_size', 0, "Examples that ours takes at once; the config's when 0.")
_WORK = flags.DEFINE_float('work', 60.0, 'Gflop of matrix products in a turn, which has 2 to 50 updates.')
_OUTPUT = flags.DEFINE_string('output', str(HERE / 'results' / 'scaling.json'), 'Where the results lie.')
_SHOW = flags.DEFINE_boolean('show', False, 'Print and draw the results that are there, and measure nothing.')


def point(V: int, B: int) -> dict[str, list[int]]:
    """Words a second of each turn, by contestant and precision, at one size."""
    flops = 6 * V * 100 * B
    S = int(np.clip(_WORK.value * 1e9 / flops, 2, 50))
    problem = contestants.make_problem(brown.get_config('mlp9'), V, B, S, _ROUNDS.value + 1, _BLOCK.value)
    raced = [r for r in RACED if r[0] == 'ours' or 4 * B * V <= LIMIT]
    turns = {f'{name}, {precision}': contestants.find(name)(problem, precision) for name, precision in raced}
    seconds = contestants.alternate(turns, _ROUNDS.value)
    return {name: [round(S * B / s, 1) for s in found] for name, found in seconds.items()}


def measure_axis(axis: str) -> list[dict[str, Any]]:
    """All points of one axis."""
    found = []
    for value in AXES[axis]:
        size = {**FIXED, axis: value}
        found.append({axis: value, 'words_per_second': point(size['vocabulary'], size['batch'])})
        print(f'{axis} {value:,} measured', file=sys.stderr)
    return found


def _names(points: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for p in points for name in p['words_per_second']))


def make_tables(found: dict[str, Any]) -> str:
    """A table an axis: microseconds a word and words a second of each contestant, medians over the rounds."""
    tables = []
    for axis, points in found['axes'].items():
        names = _names(points)
        lines = []
        for p in points:
            rates = [np.median(p['words_per_second'].get(name, [np.nan])) for name in names]
            cells = [f'{1e6 / r:,.0f} ({r:,.0f})' if np.isfinite(r) else '-' for r in rates]
            lines.append([f'{p[axis]:,}', *cells])
        tables.append(markdown_table([axis, *(f'{name}: µs a word (words/s)' for name in names)], lines))
    return '\n\n'.join([*tables, f'On {found["device"]}, load {found["load_before"]:.1f} before.'])


def draw(found: dict[str, Any], path: pathlib.Path) -> None:
    """One panel an axis, both scales logarithmic: microseconds a word, medians over the rounds."""
    import matplotlib.figure  # noqa: PLC0415 (slow to import, and only the end needs it)
    import matplotlib.ticker  # noqa: PLC0415

    figure = matplotlib.figure.Figure(figsize=(5 * len(found['axes']), 4), layout='constrained')
    panels = figure.subplots(1, len(found['axes']), squeeze=False)[0]
    for panel, (axis, points) in zip(panels, found['axes'].items()):
        for name in _names(points):
            rates = {p[axis]: p['words_per_second'][name] for p in points if name in p['words_per_second']}
            panel.plot(list(rates), [1e6 / np.median(r) for r in rates.values()], 'o-', label=name, markersize=4)
        fixed = ', '.join(f'{other} {value:,}' for other, value in FIXED.items() if other != axis)
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


def main(_) -> None:
    """Measures and draws the figure unless told only to show; prints the tables."""
    contestants.set_up()
    path = pathlib.Path(_OUTPUT.value)
    if not _SHOW.value:
        path.parent.mkdir(parents=True, exist_ok=True)
        found = {
            'rounds': _ROUNDS.value,
            'load_before': os.getloadavg()[0],
            'axes': {axis: measure_axis(axis) for axis in _AXES.value},
            'command': shlex.join(['python', '-m', 'experiments.speed.scaling', *sys.argv[1:]]),
            **provenance.provenance(),
        }
        results.write(path, found)
        draw(found, path.with_suffix('.png'))
    results.show(lambda: make_tables(results.read(path.parent, path.stem)))


if __name__ == '__main__':
    app.run(main)
