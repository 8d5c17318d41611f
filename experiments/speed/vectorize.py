"""Eight seeds of one network, trained together by launch.py --vectorize or one after another, alternating.

    python -m experiments.speed.vectorize [--sizes=tiny,small] [--rounds=2]
    python -m experiments.speed.vectorize --show   the table of the committed results; nothing runs

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
from typing import Any

import numpy as np
from absl import app, flags

from experiments import results
from experiments.speed import eight_seeds, problem
from nplm_jax.runs import provenance
from nplm_jax.utils import io as io_lib
from nplm_jax.utils.text import markdown_table

HERE = pathlib.Path(__file__).parent
MODES = {'alone': [], 'together': ['--vectorize']}  # flags of launch.py
TIMES = ('whole', 'updates')  # the seconds of the command, and those inside updates

_SIZES = problem.define_several('sizes', eight_seeds.SIZES, 'The networks')
_ROUNDS = flags.DEFINE_integer('rounds', 2, 'Sweeps of each mode.')
_OUTPUT = flags.DEFINE_string('output', str(HERE / 'results' / 'vectorize.json'), 'The file of the results.')
_SHOW = flags.DEFINE_boolean('show', False, 'Print the table of the existing results, and run nothing.')
HEADER = ['vocabulary', 'h', 'batch', 'updates', *(f'{t}: alone, together, ratio' for t in TIMES), 'difference']


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
        f'--config=experiments/speed/eight_seeds.py:{size}',
        '--sweep',
        *MODES[mode],
    ]
    command += [f'--config.corpus.path={text}', '--config.corpus.boundary_tokens=False', f'--workdir={folder}']
    started = time.perf_counter()
    environment = {**os.environ, 'JAX_COMPILATION_CACHE_DIR': str(cache)}
    subprocess.run(command, cwd=HERE.parents[1], env=environment, stdout=subprocess.DEVNULL, check=True)
    seconds = time.perf_counter() - started
    points = [json.loads((folder / f'seed={s + 1}' / 'results.json').read_text()) for s in range(eight_seeds.SEEDS)]
    batch = eight_seeds.SIZES[size][2]
    updates = [point['updates'] * batch / point['words_per_second'] for point in points]
    return {
        'seconds': round(seconds, 1),
        'updates': round(max(updates) if mode == 'together' else sum(updates), 1),
        'perplexity': [point['perplexity']['valid'] for point in points],
        'made': {key: points[0][key] for key in ('vocabulary', 'words', 'updates')},
    }


def measure(size: str) -> dict[str, Any]:
    """Runs all rounds of one network, in reverse order every second round."""
    V, (n, m, h), batch, words, _ = eight_seeds.SIZES[size]
    seconds: dict[str, dict[str, list[float]]] = {mode: {key: [] for key in TIMES} for mode in MODES}
    perplexities, made = {}, {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_text(folder / 'text', V, words)
        for i in range(_ROUNDS.value):
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


def main(_: list[str]) -> None:
    """Runs the sweeps unless told only to show, and prints the table."""
    problem.set_up()
    path = io_lib.expand('--output', _OUTPUT.value)
    if not _SHOW.value:
        path.parent.mkdir(parents=True, exist_ok=True)
        measured = {
            'rounds': _ROUNDS.value,
            'load_before': os.getloadavg()[0],
            'rows': [measure(size) for size in _SIZES.value],
            **provenance.of_module('experiments.speed.vectorize'),
        }
        results.write(path, measured)
    results.show(lambda: make_table(results.read(path.parent, path.stem)))


if __name__ == '__main__':
    app.run(main)
