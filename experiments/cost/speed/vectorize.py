"""Eight seeds of one network, trained together by launch.py --vectorize or one after another, alternating.

    python -m experiments.cost.speed.vectorize [--sizes=tiny,small] [--rounds=2]
    python -m experiments.cost.speed.vectorize --show   the table of the committed results; nothing runs

Writes results/vectorize.json and prints the table. Each sweep starts with an empty compilation cache.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments import study
from experiments.cost.speed import eight_seeds, problem
from experiments.sources import of_module
from nplm_jax.reporting.text import markdown_table

HERE = pathlib.Path(__file__).parent
MODES = {'alone': [], 'together': ['--vectorize']}  # flags of launch.py
TIMES = ('whole', 'updates')  # the seconds of the command, and those inside updates
HEADER = ['vocabulary', 'h', 'batch', 'updates', *(f'{t}: alone, together, ratio' for t in TIMES), 'difference']


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    parser.add_names('--sizes', eight_seeds.SIZES, 'the networks')
    parser.add_count('--rounds', 2, 'sweeps of each mode')
    parser.add_output_path(HERE / 'results' / 'vectorize.json')


def write_text(path: pathlib.Path, V: int, words: int) -> None:
    """Writes words drawn by Zipf's law; each of V - 1 words occurs at least once, and <rare> is the V-th word."""
    share_V = 1 / np.arange(1, V)
    drawn = np.random.default_rng(1).choice(V - 1, words - (V - 1), p=share_V / share_V.sum())
    stream = np.random.default_rng(2).permutation(np.concatenate([np.arange(V - 1), drawn]))
    path.write_text(' '.join(f'w{i}' for i in stream))


def sweep(size: str, text: pathlib.Path, folder: pathlib.Path, mode: str, cache: pathlib.Path) -> dict[str, Any]:
    """Runs launch.py --sweep. Returns: its seconds, those inside updates, and each point's validation perplexity."""
    command = [
        sys.executable,
        'launch.py',
        f'--config=experiments/cost/speed/eight_seeds.py:{size}',
        '--sweep',
        *MODES[mode],
    ]
    command += [f'--config.corpus.path={text}', '--config.corpus.boundary_tokens=False', f'--workdir={folder}']
    started = time.perf_counter()
    environment = {**os.environ, 'JAX_COMPILATION_CACHE_DIR': str(cache)}
    done = subprocess.run(command, cwd=HERE.parents[2], env=environment, stdout=subprocess.DEVNULL)
    if done.returncode:  # it has said why
        sys.exit(f'vectorize.py: launch.py ended with {done.returncode}')
    seconds = time.perf_counter() - started
    points = [json.loads((folder / f'seed_{s + 1}' / 'results.json').read_text()) for s in range(eight_seeds.SEEDS)]
    batch = eight_seeds.SIZES[size][2]
    updates = [point['updates'] * batch / point['words_per_second'] for point in points]
    return {
        'seconds': round(seconds, 1),
        'updates': round(max(updates) if mode == 'together' else sum(updates), 1),
        'perplexity': [point['perplexity']['valid'] for point in points],
        'made': {key: points[0][key] for key in ('vocabulary', 'words', 'updates')},
    }


def measure(size: str, rounds: int) -> dict[str, Any]:
    """Runs all rounds of one network, in reverse order every second round."""
    V, (n, m, h), batch, words, _ = eight_seeds.SIZES[size]
    seconds: dict[str, dict[str, list[float]]] = {mode: {key: [] for key in TIMES} for mode in MODES}
    perplexities, made = {}, {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_text(folder / 'text', V, words)
        for i in range(rounds):
            for mode in list(MODES)[:: -1 if i % 2 else 1]:
                done = sweep(size, folder / 'text', folder / f'{mode}-{i}', mode, folder / f'compiled-{mode}-{i}')
                seconds[mode]['whole'].append(done['seconds'])
                seconds[mode]['updates'].append(done['updates'])
                print(f'{size}, {mode}: {done["seconds"]} s', file=sys.stderr)
                perplexities[mode], made = np.array(done['perplexity']), done['made']
    difference = float(np.abs(perplexities['together'] / perplexities['alone'] - 1).max())
    shape = {'n': n, 'm': m, 'h': h, 'batch': batch, **made}
    return {'size': size, **shape, 'seconds': seconds, 'largest_relative_difference': difference}


def make_table(measured: dict[str, Any]) -> str:
    """Returns one line a network: medians over the rounds, and the median of the rounds' ratios."""
    lines = []
    for row in measured['rows']:
        cells = []
        for kind in TIMES:
            alone, together = (np.array(row['seconds'][mode][kind]) for mode in MODES)
            ratio = np.median(alone / together)
            cells.append(f'{np.median(alone):,.0f}, {np.median(together):,.0f}, {ratio:.2f}')
        sizes = [f'{row[key]:,}' for key in ('vocabulary', 'h', 'batch', 'updates')]
        lines.append([*sizes, *cells, f'{row["largest_relative_difference"]:.0e}'])
    about = f'{eight_seeds.SEEDS} seeds, seconds, {measured["rounds"]} rounds, on {measured["device"]}, '
    return f'{markdown_table(HEADER, lines)}\n\n{about}load {measured["load_before"]:.1f} before.'


def measure_all(flags: study.Flags) -> Iterator[dict[str, Any]]:
    """Yields everything that vectorize.json holds, after each network."""
    problem.set_up()
    facts = {'rounds': flags.rounds, 'load_before': os.getloadavg()[0]}
    facts |= of_module('experiments.cost.speed.vectorize')
    rows = []
    for size in flags.sizes:
        rows.append(measure(size, flags.rounds))
        yield {**facts, 'rows': rows}


main, show = problem.commands(measure_all, make_table)


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=show)
