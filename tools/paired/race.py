"""Races the training steps of two checkouts, in two processes that take turns on the same words and parameters.

    python -m tools.paired.race --base=FOLDER [--rows=mlp1,mlp9] [--precisions=float32] [--rounds=5]
    python -m tools.paired.race --show [--output=FILE]      prints the table of an earlier race without measuring

FOLDER is another checkout, such as one created by `git worktree add`. Writes runs/paired.json and prints the table.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import statistics
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from configs import brown
from experiments import study
from experiments.cost.speed import problem
from experiments.sources import of_module
from nplm_jax.reporting.text import markdown_table
from tools.paired import checkouts
from tools.paired.checkouts import Checkout

ROOT = pathlib.Path(__file__).parents[2]
SIDES = ('base', 'new')
PAPER = ('mlp1', 'mlp9')  # rows to race in each precision; the last row also races with each output.kind
OWN = ('default', 'one_minute')  # rows to race unchanged, with their own batch size
KINDS = ('sampled', 'nce', 'two_level')
LARGEST_DIFFERENCE = 1e-2  # maximum difference between the losses of equivalent checkouts, nats per word
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


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    parser.add_argument('--base', default='', metavar='FOLDER', help='folder of the checkout to compare with')
    parser.add_names('--rows', [*PAPER, *OWN], 'networks to train')
    parser.add_names('--precisions', problem.PRECISIONS, 'precisions of matrix products with output.kind=full')
    parser.add_names('--kinds', KINDS, 'other values of output.kind to measure with the last row')
    parser.add_count('--batch', 512, 'number of words per update')
    parser.add_count('--steps', 20, 'number of updates per execution')
    parser.add_argument('--seconds', type=float, default=1.0, help='approximate duration of a turn [s]')
    parser.add_count('--rounds', 5, 'number of timed turns of each checkout')
    parser.add_count('--starts', 3, 'number of compilations of each entry in each checkout')
    parser.add_output_path(pathlib.Path('runs') / 'paired.json')


def entries(flags: study.Flags) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields each contestant's row and changed keys."""
    of_paper = [row for row in flags.rows if row in PAPER]
    batch = {'train.batch_size': flags.batch}
    for row, precision in itertools.product(of_paper, flags.precisions):
        yield row, {'output.precision': precision, **batch}
    for row, kind in itertools.product(of_paper[-1:], flags.kinds):
        yield row, {'output.kind': kind, **batch}
    yield from ((row, {}) for row in flags.rows if row in OWN)


def order(i: int) -> tuple[str, ...]:
    """Returns the sides in the order of round i; the order alternates."""
    return SIDES[:: -1 if i % 2 else 1]


def race(flags: study.Flags, sides: dict[str, Checkout], row: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Returns the times of one contestant on both sides. Raises SystemExit if the losses of the sides differ."""
    output = ' '.join(value for key, value in changes.items() if key.startswith('output.'))
    name = f'{row} {output}'.strip()
    entry = dict(row=row, changes=changes, vocabulary=brown.VOCABULARY, steps=flags.steps)
    starts: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for i in range(flags.starts):
        for side in order(i):
            starts[side].append(sides[side].ask(name=name, compile=entry))
    nll = {side: np.array([start.pop('nll') for start in starts[side]]) for side in SIDES}
    difference = float(np.abs(nll['base'] - nll['new']).max())
    if not difference <= LARGEST_DIFFERENCE:  # a loss may be nan
        sys.exit(f'{name}: the losses differ by up to {difference:.2g}')
    executions = max(1, round(flags.seconds / min(start['steady'] for start in starts['base'])))
    rates: dict[str, list[int]] = {side: [] for side in SIDES}
    cpu_rates: dict[str, list[int]] = {side: [] for side in SIDES}
    num_words = executions * flags.steps * starts['base'][0]['batch_size']
    for i in range(flags.rounds):
        for side in order(i):
            turn = sides[side].ask(name=name, executions=executions)
            rates[side].append(round(num_words / turn['seconds']))
            cpu_rates[side].append(round(num_words / turn['cpu_seconds']))
    print(f'{name}: measured', file=sys.stderr)
    shown = {'row': row, 'output': output, 'executions': executions}
    rates_of = {'words_per_second': rates, 'words_per_cpu_second': cpu_rates}
    return {**shown, **rates_of, 'starts': starts, 'largest_difference_of_losses': difference}


def make_table(measured: dict[str, Any]) -> str:
    """Returns one line per contestant, with medians over the rounds and the median of the rounds' ratios.

    The time of a start is the median time from the settings to the end of the first execution, minus the time of a
    later execution. Other work on the machine affects CPU time less than wall time.
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
    about = f'The race had {measured["rounds"]} rounds. An execution had {measured["steps"]} updates of '
    about += f'{measured["batch"]} words. The device was {measured["device"]}, with a load of '
    about += f'{measured["load_before"]:.1f} before and {measured["load_after"]:.1f} after the race.'
    return f'{markdown_table(HEADER, lines)}\n\n{about}'


def measure(flags: study.Flags) -> Iterator[dict[str, Any]]:
    """Yields the content of the file after each contestant."""
    base = checkouts.find('--base', flags.base)
    facts = {
        'base': checkouts.commit_of(base),
        'batch': flags.batch,
        'steps': flags.steps,
        'rounds': flags.rounds,
        'load_before': os.getloadavg()[0],
        **of_module('tools.paired.race'),
    }
    raced = []
    with contextlib.ExitStack() as stack:
        sides = {side: Checkout(folder, stack) for side, folder in zip(SIDES, (base, ROOT))}
        for entry in entries(flags):
            raced.append(race(flags, sides, *entry))
            yield {**facts, 'load_after': os.getloadavg()[0], 'raced': raced}


main, show = problem.commands(measure, make_table)


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show)
