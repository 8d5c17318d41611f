"""Compares training steps of nplm-jax, plain JAX and PyTorch, timed alternately on the same words and parameters.

    python -m experiments.cost.speed.race [--rows=mlp1,lstm] [--batch=512] [--contestants=ours,torch_compile]
    python -m experiments.cost.speed.race --quick     checks small batches, whose losses must agree
    python -m experiments.cost.speed.race --show      prints the table of the committed results

Writes results/race.json and prints the table. PyTorch, which is not in requirements.txt, races if it is installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from experiments import study
from experiments.cost.speed import ceiling, contestants, problem
from experiments.sources import of_module
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs.precision_choice import native_precision
from nplm_jax.utils.errors import BadInput

HERE = pathlib.Path(__file__).parent
HEADER = ['row', 'contestant', 'precision', 'words/s', 'range', 'first / it', 'of ceiling', 'MB', 'start MB']


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_names('--rows', problem.ROWS, 'networks to train')
    who = 'contestants, each of which is compared with the first'
    parser.add_names('--contestants', contestants.NAMES, who, default='all installed contestants')
    which = 'precisions of matrix products'
    parser.add_names('--precisions', problem.PRECISIONS, which, default='the faster precision on this machine')
    parser.add_count('--batch', 512, 'number of words per update')
    parser.add_count(
        '--block_size',
        0,
        'number of examples per block of scores in nplm-jax; 0 means the value in the config',
        least=0,
    )
    parser.add_count('--steps', 10, 'number of updates per turn')
    parser.add_count('--rounds', 5, 'number of timed turns of each contestant')
    parser.add_output_path(HERE / 'results' / 'race.json')
    keep = 'reuse the peak memory recorded in --output; default: measure the peak memory'
    parser.add_argument('--no-memory', '--nomemory', dest='memory', action='store_false', help=keep)
    small = {'rows': problem.QUICK, 'contestants': ['ours', 'plain_jax'], 'batch': 32, 'steps': 2, 'rounds': 1}
    parser.add_quick(**small, output='runs/quick/race.json')


def entered(named: Sequence[str] | None) -> list[str]:
    """Returns the contestants that are named, or all installed contestants if none are named.

    Raises:
        ModuleNotFoundError: A named contestant is not installed.
    """
    for name in named or ():
        importlib.import_module(contestants.package_of(name))
    missing = [name for name in contestants.NAMES if not importlib.util.find_spec(contestants.package_of(name))]
    if missing and not named:
        packages = ' '.join(dict.fromkeys(map(contestants.package_of, missing)))
        print(f'{", ".join(missing)} skipped; to include them, run pip install {packages}', file=sys.stderr)
    return list(named or [name for name in contestants.NAMES if name not in missing])


def race_row(
    flags: study.Flags, row: str, entries: Sequence[tuple[str, str]], earlier: Mapping[Any, Any]
) -> dict[str, Any]:
    """Races contestants on one network. Returns the words per second of each turn, and the peak memory unless known.

    With --quick, dropout is disabled, the losses are compared, and memory is not measured.
    """
    make_config, V = problem.ROWS[row]
    config, B, S = make_config(), flags.batch, flags.steps
    if flags.quick:
        config = problem.without_dropout(config)
    shared = problem.make_problem(config, V, B, S, flags.rounds + 1, flags.block_size)
    known = {entry: earlier.get((row, *entry)) for entry in entries}
    memory = {entry: known[entry] or (None if flags.quick else peak_memory(flags, row, *entry)) for entry in entries}
    turns = {entry: contestants.find(entry[0])(shared, entry[1]) for entry in entries}
    if flags.quick:
        problem.check_losses(turns)
    seconds = problem.alternate(turns, flags.rounds)
    raced = [
        {
            'contestant': name,
            'precision': precision,
            'words_per_second': [round(S * B / s) for s in seconds[name, precision]],
            'memory': memory[name, precision],
        }
        for name, precision in entries
    ]
    return {'row': row, 'vocabulary': V, 'flops_a_word': shared.flops_per_word, 'raced': raced}


def peak_memory(flags: study.Flags, row: str, name: str, precision: str) -> dict[str, int]:
    """Returns the number of bytes that memory.py measures in a new process."""
    which = [f'--row={row}', f'--contestant={name}', f'--precision={precision}', f'--batch={flags.batch}']
    which.append(f'--block_size={flags.block_size}')
    command = [sys.executable, '-m', 'experiments.cost.speed.memory', *which]
    done = subprocess.run(command, cwd=HERE.parents[2], stdout=subprocess.PIPE, text=True)
    if done.returncode:  # the child has reported the reason
        sys.exit(f'{" ".join(command[1:])} ended with exit code {done.returncode}')
    return json.loads(done.stdout.splitlines()[-1])


def earlier_memory(flags: study.Flags, row: str, name: str, precision: str) -> dict[str, int]:
    """Returns the results of an earlier race. Raises BadInput if that race lacks one of the contestants."""
    try:
        raced = next(r['raced'] for r in problem.recorded(flags)['rows'] if r['row'] == row)
        return next(r['memory'] for r in raced if (r['contestant'], r['precision']) == (name, precision))
    except (BadInput, LookupError, TypeError, StopIteration):
        entry = f'{name} in {precision} on {row}'
        raise BadInput(
            '--no-memory', f'{flags.output} does not contain the memory of {entry}; omit this flag to measure it'
        ) from None


def make_table(measured: dict[str, Any]) -> str:
    """Returns one line per row, contestant and precision, with medians over the rounds and the median ratio."""
    lines = []
    for row in measured['rows']:
        # In reverse order, so the first contestant of each precision remains in the dictionary.
        first = {r['precision']: np.array(r['words_per_second']) for r in reversed(row['raced'])}
        for r in row['raced']:
            rates = np.array(r['words_per_second'])
            share = np.median(rates) * row['flops_a_word'] / max(measured['ceiling'][r['precision']].values())
            lines.append(
                [
                    row['row'],
                    r['contestant'],
                    r['precision'],
                    f'{np.median(rates):,.0f}',
                    f'{rates.min():,}-{rates.max():,}',
                    f'{np.median(first[r["precision"]] / rates):.2f}',
                    f'{share:.0%}',
                    *(f'{r["memory"][k] / 1e6:,.0f}' if r['memory'] else '-' for k in ('peak', 'start')),
                ]
            )
    ceiling = ', '.join(
        f'{precision} {max(by.values()) / 1e9:,.0f} Gflop/s ({max(by, key=by.get)})'
        for precision, by in measured['ceiling'].items()
    )
    about = f'The race had {measured["rounds"]} rounds. A turn had {measured["steps"]} updates of '
    about += f'{measured["batch"]} words. The device was {measured["device"]}, with a load of '
    about += f'{measured["load_before"]:.1f} before the race.'
    return f'{markdown_table(HEADER, lines)}\n\n{about}\nThe ceiling of matrix products is {ceiling}.'


def measure(flags: study.Flags) -> Iterator[dict[str, Any]]:
    """Yields the content of race.json after each row."""
    for row in flags.rows:  # rejects an invalid batch size before anything is measured
        problem.make_settings(problem.ROWS[row][0](), flags.batch, flags.rounds + 1, flags.block_size)
    problem.set_up()
    precisions, names = flags.precisions or [native_precision()], entered(flags.contestants)
    entries = [(name, precision) for precision in precisions for name in names]
    raced = [(row, *entry) for row in flags.rows for entry in entries]
    earlier = {} if flags.memory else {entry: earlier_memory(flags, *entry) for entry in raced}
    measured = {
        'batch': flags.batch,
        'steps': flags.steps,
        'rounds': flags.rounds,
        'load_before': os.getloadavg()[0],
        **of_module('experiments.cost.speed.race'),
        'ceiling': ceiling.flops_per_second(precisions, 1 if flags.quick else 8),
        'rows': [],
    }
    if importlib.util.find_spec('torch'):
        measured['versions']['torch'] = importlib.import_module('torch').__version__
    for row in flags.rows:
        measured['rows'].append(race_row(flags, row, entries, earlier))
        yield measured


main, show = problem.commands(measure, make_table)


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show)
