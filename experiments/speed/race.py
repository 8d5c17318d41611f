"""Races our training step against plain JAX and PyTorch, alternating in one run on the same words and parameters.

    python -m experiments.speed.race [--rows=mlp1,mlp9,mlp10] [--batch=512] [--contestants=ours,torch_compile]
    python -m experiments.speed.race --show      the table of the committed results, nothing measured

Writes results/race.json and prints the table. Needs PyTorch, which requirements.txt leaves out.
"""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import subprocess
import sys
from typing import Any

import jax
import numpy as np
from absl import app, flags

from experiments import results
from experiments.speed import contestants, problem
from nplm_jax.runs import provenance
from nplm_jax.utils.text import markdown_table

HERE = pathlib.Path(__file__).parent
_ROWS = problem.define_several('rows', problem.ROWS, 'The networks')
_CONTESTANTS = problem.define_several('contestants', contestants.NAMES, 'Who races; the first is compared with each')
_PRECISIONS = problem.define_several('precisions', problem.PRECISIONS, 'Of the matrix products')
_BATCH = flags.DEFINE_integer('batch', 512, 'Words an update.')
_BLOCK = flags.DEFINE_integer('block_size', 0, "Examples whose scores ours holds at once; the config's when 0.")
_STEPS = flags.DEFINE_integer('steps', 10, 'Updates a turn.')
_ROUNDS = flags.DEFINE_integer('rounds', 5, 'Turns of each contestant that are timed.')
_OUTPUT = flags.DEFINE_string('output', str(HERE / 'results' / 'race.json'), 'The file of the results.')
_MEMORY = flags.DEFINE_boolean(
    'memory', True, 'Measure peak memory too; without it, keep the numbers that --output has.'
)
_SHOW = flags.DEFINE_boolean('show', False, 'Print the table of the existing results, and measure nothing.')
HEADER = ['row', 'contestant', 'precision', 'words/s', 'range', 'first / it', 'of ceiling', 'MB', 'start MB']


def entered() -> list[str]:
    """Returns the contestants of the flag; without the flag, those that are made for this device."""
    use_all = _CONTESTANTS.present or jax.default_backend() == 'gpu'
    return [name for name in _CONTESTANTS.value if use_all or name not in contestants.GPU_ONLY]


def race_row(row: str) -> dict[str, Any]:
    """Races all contestants on one network. Returns: words a second of each turn, and peak memory."""
    make_config, V = problem.ROWS[row]
    B, S = _BATCH.value, _STEPS.value
    shared = problem.make_problem(make_config(), V, B, S, _ROUNDS.value + 1, _BLOCK.value)
    entries = [(name, precision) for precision in _PRECISIONS.value for name in entered()]
    memory = {entry: peak_memory(row, *entry) if _MEMORY.value else earlier_memory(row, *entry) for entry in entries}
    turns = {entry: contestants.find(entry[0])(shared, entry[1]) for entry in entries}
    seconds = problem.alternate(turns, _ROUNDS.value)
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


def peak_memory(row: str, name: str, precision: str) -> dict[str, int]:
    """Returns the bytes that memory.py measures in a new process."""
    which = [f'--row={row}', f'--contestant={name}', f'--precision={precision}', f'--batch={_BATCH.value}']
    which.append(f'--block_size={_BLOCK.value}')
    command = [sys.executable, '-m', 'experiments.speed.memory', *which]
    done = subprocess.run(command, cwd=HERE.parents[1], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def earlier_memory(row: str, name: str, precision: str) -> dict[str, int]:
    """Returns what an earlier race measured. Raises: StopIteration when it had no such contestant."""
    path = pathlib.Path(_OUTPUT.value)
    raced = next(r['raced'] for r in results.read(path.parent, path.stem)['rows'] if r['row'] == row)
    return next(r['memory'] for r in raced if (r['contestant'], r['precision']) == (name, precision))


def make_table(measured: dict[str, Any]) -> str:
    """Returns one line a row, contestant and precision: medians over the rounds, and the median of their ratios."""
    lines = []
    for row in measured['rows']:
        # Backwards, so that the first contestant of each precision is the one that stays.
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
                    *(f'{r["memory"][k] / 1e6:,.0f}' for k in ('peak', 'start')),
                ]
            )
    ceiling = ', '.join(
        f'{precision} {max(by.values()) / 1e9:,.0f} Gflop/s ({max(by, key=by.get)})'
        for precision, by in measured['ceiling'].items()
    )
    about = f'Batch {measured["batch"]}, {measured["steps"]} updates a turn, {measured["rounds"]} rounds, '
    about += f'on {measured["device"]}, load {measured["load_before"]:.1f} before.'
    return f'{markdown_table(HEADER, lines)}\n\n{about}\nCeiling of matrix products: {ceiling}.'


def measure(command: str) -> dict[str, Any]:
    """Returns everything that race.json holds."""
    try:
        import torch  # noqa: PLC0415 (an optional package)
    except ModuleNotFoundError:
        sys.exit('race.py: needs PyTorch: pip install torch==2.13.0')
    from experiments.speed import ceiling  # noqa: PLC0415

    measured = {
        'batch': _BATCH.value,
        'steps': _STEPS.value,
        'rounds': _ROUNDS.value,
        'load_before': os.getloadavg()[0],
        'ceiling': ceiling.flops_per_second(),
        'rows': [race_row(row) for row in _ROWS.value],
        'command': command,
        **provenance.provenance(),
    }
    measured['versions']['torch'] = torch.__version__
    return measured


def main(_: list[str]) -> None:
    """Measures unless told only to show, and prints the table."""
    problem.set_up()
    path = pathlib.Path(_OUTPUT.value)
    if not _SHOW.value:
        path.parent.mkdir(parents=True, exist_ok=True)
        results.write(path, measure(shlex.join(['python', '-m', 'experiments.speed.race', *sys.argv[1:]])))
    results.show(lambda: make_table(results.read(path.parent, path.stem)))


if __name__ == '__main__':
    app.run(main)
