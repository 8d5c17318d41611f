"""The speed of training over commits: history.json has an entry for each commit and processor.

    python -m experiments.cost.speed.history --add [--checkout=FOLDER]    measures this checkout or another one
    python -m experiments.cost.speed.history                              prints the table, nothing measured

Between the turns NumPy multiplies matrices. Words trained for each 10^9 operations of that product can be compared
between entries even if other work shared the machine.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import statistics
import time
from typing import Any

import numpy as np

from configs import brown
from experiments import results, study
from experiments.cost.speed import checkouts, problem
from experiments.cost.speed.checkouts import Checkout
from nplm_jax.reporting import provenance
from nplm_jax.reporting.text import markdown_table

HERE = pathlib.Path(__file__).parent
ROWS = {'mlp1': 'mlp1', 'mlp9': 'mlp9', 'default': ''}  # name -> the row of configs/brown.py
BATCH = 512
SIZE = 2048  # of the matrices that NumPy multiplies
HEADER = ['commit', 'date', 'network', 'words/s', 'range', 'ms / update', 'start s', 'words / Gflop', 'load', 'machine']


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    parser.add_switch('--add', 'measure a checkout and add it to the table')
    parser.add_argument('--checkout', default=str(HERE.parents[2]), metavar='FOLDER', help='the checkout')
    parser.add_count('--rounds', 7, 'turns of each network that are timed')
    parser.add_count('--updates', 20, 'updates of a turn')
    parser.add_output_path(HERE / 'history.json')


def product_rate(matrix: np.ndarray, repeats: int = 3) -> float:
    """Returns 10^9 float32 operations a second of NumPy's product."""
    started = time.perf_counter()
    for _ in range(repeats):
        matrix @ matrix
    return repeats * 2 * len(matrix) ** 3 / (time.perf_counter() - started) / 1e9


def measure(folder: pathlib.Path, rounds: int, updates: int) -> dict[str, Any]:
    """Returns the entry of a checkout."""
    load_before, commit, date = os.getloadavg()[0], checkouts.commit_of(folder), date_of(folder)
    matrix = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32)
    product_rate(matrix)
    measured: dict[str, dict[str, Any]] = {}
    products = []
    with contextlib.ExitStack() as stack:
        processes = {}
        for name, row in ROWS.items():
            started = time.perf_counter()
            processes[name] = Checkout(folder, stack)
            entry = {'row': row, 'changes': {'train.batch_size': BATCH}, 'vocabulary': brown.VOCABULARY}
            answer = processes[name].ask(name=name, compile={**entry, 'steps': updates})
            first = time.perf_counter() - started - 3 * answer['steady']  # it makes three turns
            measured[name] = {'seconds_to_first_update': first, 'words_per_second': [], 'words_per_gflop': []}
        for i in range(rounds):
            for name in list(ROWS)[:: -1 if i % 2 else 1]:
                before = product_rate(matrix)
                turn = processes[name].ask(name=name, executions=1)
                product = statistics.mean([before, product_rate(matrix)])
                rate = updates * BATCH / turn['seconds']
                measured[name]['words_per_second'].append(round(rate))
                measured[name]['words_per_gflop'].append(rate / product)
                products.append(product)
    return {
        'command': f'python -m experiments.cost.speed.history --add --rounds={rounds} --updates={updates}',
        **provenance.provenance(),
        'commit': commit,
        'date': date,
        'amx': has_amx(),
        'updates': updates,
        'rounds': rounds,
        'load_before': load_before,
        'load_after': os.getloadavg()[0],
        'product_gflops': statistics.median(products),
        'rows': measured,
    }


def date_of(folder: pathlib.Path) -> str:
    """Returns the day of the commit that is checked out in a folder."""
    return checkouts.git(folder, 'show', '--no-patch', '--format=%cs')


def has_amx() -> bool:
    """Returns whether the processor has AMX, which doubles the speed of bfloat16. Only Linux tells."""
    info = pathlib.Path('/proc/cpuinfo')
    return info.exists() and ' amx_tile' in info.read_text()


def add(entries: list[dict[str, Any]], entry: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the entries with a new one in place of that of the same commit and device."""
    key = entry['commit'], entry['device']
    kept = [e for e in entries if (e['commit'], e['device']) != key]
    return sorted([*kept, entry], key=lambda e: e['date'])


def make_table(entries: list[dict[str, Any]]) -> str:
    """Returns one line an entry and network: medians over the rounds."""
    lines = []
    for entry in entries:
        jax, amx = entry['versions']['jax'], 'AMX' if entry['amx'] else 'no AMX'
        load = f'{entry["load_before"]:.1f}-{entry["load_after"]:.1f}'
        for name, row in entry['rows'].items():
            rates = row['words_per_second']
            median = statistics.median(rates)
            lines.append(
                [
                    entry['commit'][:7],
                    entry['date'],
                    name,
                    f'{median:,.0f}',
                    f'{min(rates):,}-{max(rates):,}',
                    f'{1000 * BATCH / median:.1f}',
                    f'{row["seconds_to_first_update"]:.1f}',
                    f'{statistics.median(row["words_per_gflop"]):.1f}',
                    load,
                    f'{entry["device"]}, {amx}, JAX {jax}',
                ]
            )
    return markdown_table(HEADER, lines)


def main(flags: study.Flags) -> None:
    """Measures if told to, and prints the table."""
    if flags.add:
        folder = checkouts.find('--checkout', flags.checkout)
        entries = problem.recorded(flags)['entries'] if flags.output.exists() else []
        entry = measure(folder, flags.rounds, flags.updates)
        results.write(flags.output, {'entries': add(entries, entry)})
    print(study.shown(show, flags))


def show(flags: study.Flags) -> str:
    """Returns the table of the file of results."""
    return make_table(problem.recorded(flags)['entries'])


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show)
