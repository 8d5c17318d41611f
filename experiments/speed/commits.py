"""Races the training steps of two checkouts, in two processes that take turns on the same words and parameters.

    python -m experiments.speed.commits --base=FOLDER [--rows=mlp1,mlp9] [--precisions=float32] [--rounds=5]
    python -m experiments.speed.commits --show      the table of the committed results, nothing measured

FOLDER is another checkout, for example of `git worktree add`. Writes results/commits.json and prints the table.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import statistics
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from absl import app, flags

from configs import brown
from experiments import results
from experiments.speed import problem
from experiments.speed.checkouts import Checkout, commit_of
from nplm_jax.runs import provenance
from nplm_jax.utils.text import markdown_table

HERE = pathlib.Path(__file__).parent
SIDES = ('base', 'new')
KINDS = ('sampled', 'nce', 'two_level')
LARGEST_DIFFERENCE = 1e-2  # of the losses of two checkouts that train alike, nats a word
HEADER = [
    'row',
    'output',
    'base words/s',
    'new words/s',
    'new / base',
    'range',
    'by CPU time',
    'start: base',
    'new',
    'CPU: base',
    'new',
]

_BASE = flags.DEFINE_string('base', '', 'The folder of the checkout to compare with.')
_ROWS = problem.define_several('rows', ['mlp1', 'mlp9'], 'The networks')
_PRECISIONS = problem.define_several('precisions', problem.PRECISIONS, "Of the full output's products")
_KINDS = problem.define_several('kinds', KINDS, 'Other outputs, raced on the last row')
_BATCH = flags.DEFINE_integer('batch', 512, 'Words an update.')
_STEPS = flags.DEFINE_integer('steps', 20, 'Updates of one execution.')
_SECONDS = flags.DEFINE_float('seconds', 1.0, 'About how long a turn takes.')
_ROUNDS = flags.DEFINE_integer('rounds', 5, 'Turns of each side that are timed.')
_STARTS = flags.DEFINE_integer('starts', 3, 'How often each side compiles each entry.')
_OUTPUT = flags.DEFINE_string('output', str(HERE / 'results' / 'commits.json'), 'The file of the results.')
_SHOW = flags.DEFINE_boolean('show', False, 'Print the table of the existing results, and measure nothing.')


def entries() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields row and changed keys of each contestant."""
    for row in _ROWS.value:
        for precision in _PRECISIONS.value:
            yield row, {'output.precision': precision}
    for kind in _KINDS.value:
        yield _ROWS.value[-1], {'output.kind': kind}


def order(i: int) -> tuple[str, ...]:
    """Returns the sides in the order of round i: every second round the other one begins."""
    return SIDES[:: -1 if i % 2 else 1]


def race(sides: dict[str, Checkout], row: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Returns the times of one contestant on both sides. Raises: SystemExit when they do not train alike."""
    name = ' '.join([row, *changes.values()])
    changes_and_batch = {**changes, 'train.batch_size': _BATCH.value}
    entry = dict(row=row, changes=changes_and_batch, vocabulary=brown.VOCABULARY, steps=_STEPS.value)
    starts: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for i in range(_STARTS.value):
        for side in order(i):
            starts[side].append(sides[side].ask(name=name, compile=entry))
    nll = {side: np.array([start.pop('nll') for start in starts[side]]) for side in SIDES}
    difference = float(np.abs(nll['base'] - nll['new']).max())
    if difference > LARGEST_DIFFERENCE:
        sys.exit(f'commits.py: {name}: the losses differ by up to {difference:.2g}')
    executions = max(1, round(_SECONDS.value / min(start['steady'] for start in starts['base'])))
    rates: dict[str, list[int]] = {side: [] for side in SIDES}
    cpu_rates: dict[str, list[int]] = {side: [] for side in SIDES}
    num_words = executions * _STEPS.value * _BATCH.value
    for i in range(_ROUNDS.value):
        for side in order(i):
            turn = sides[side].ask(name=name, executions=executions)
            rates[side].append(round(num_words / turn['seconds']))
            cpu_rates[side].append(round(num_words / turn['cpu_seconds']))
    print(f'{name}: measured', file=sys.stderr)
    shown = {'row': row, 'output': ' '.join(changes.values()), 'executions': executions}
    rates_of = {'words_per_second': rates, 'words_per_cpu_second': cpu_rates}
    return {**shown, **rates_of, 'starts': starts, 'largest_difference_of_losses': difference}


def make_table(measured: dict[str, Any]) -> str:
    """Returns one line a contestant: medians over the rounds, and the median of the rounds' ratios.

    A start is the median of the seconds from the settings to the end of the first execution, less what a later
    execution takes. The CPU time of the process suffers less from other work on the machine than the time that passes.
    """
    lines = []
    for entry in measured['raced']:
        rates = {side: np.array(entry['words_per_second'][side]) for side in SIDES}
        ratios = rates['new'] / rates['base']
        cpu_ratios = np.divide(*(entry['words_per_cpu_second'][side] for side in SIDES[::-1]))
        starts = [entry['starts'][side] for side in SIDES]
        wall = [statistics.median(start['prepare'] + start['compile'] for start in side) for side in starts]
        cpu = [statistics.median(start['cpu_seconds'] for start in side) for side in starts]
        lines.append(
            [
                entry['row'],
                entry['output'],
                *(f'{np.median(rates[side]):,.0f}' for side in SIDES),
                f'{np.median(ratios):.3f}',
                f'{ratios.min():.2f}-{ratios.max():.2f}',
                f'{np.median(cpu_ratios):.3f}',
                *(f'{seconds:.2f}' for seconds in (*wall, *cpu)),
            ]
        )
    about = f'Batch {measured["batch"]}, {measured["steps"]} updates an execution, {measured["rounds"]} rounds, on '
    about += f'{measured["device"]}, load {measured["load_before"]:.1f} before and {measured["load_after"]:.1f} after.'
    return f'{markdown_table(HEADER, lines)}\n\n{about}'


def measure(base: pathlib.Path) -> dict[str, Any]:
    """Returns everything that commits.json holds."""
    load_before = os.getloadavg()[0]
    with contextlib.ExitStack() as stack:
        sides = {side: Checkout(folder, stack) for side, folder in zip(SIDES, (base, HERE.parents[1]))}
        raced = [race(sides, *entry) for entry in entries()]
    return {
        'base': commit_of(base),
        'batch': _BATCH.value,
        'steps': _STEPS.value,
        'rounds': _ROUNDS.value,
        'load_before': load_before,
        'load_after': os.getloadavg()[0],
        'raced': raced,
        **provenance.of_module('experiments.speed.commits'),
    }


def main(_: list[str]) -> None:
    """Measures unless told only to show, and prints the table."""
    path = pathlib.Path(_OUTPUT.value)
    if not _SHOW.value:
        if not (pathlib.Path(_BASE.value) / 'nplm_jax').is_dir() or not _BASE.value:
            sys.exit(f'commits.py: --base={_BASE.value!r} must be a folder with another checkout of this repository')
        path.parent.mkdir(parents=True, exist_ok=True)
        results.write(path, measure(pathlib.Path(_BASE.value).resolve()))
    results.show(lambda: make_table(results.read(path.parent, path.stem)))


if __name__ == '__main__':
    app.run(main)
