"""Eight seeds of one network, trained together by --vectorize against one after another, by launch.py, alternating.

    python -m experiments.speed.vectorize [--sizes=tiny,small] [--rounds=2]
    python -m experiments.speed.vectorize --show   the table of the committed results, nothing run

Writes results/vectorize.json and prints the table. Nothing is compiled before: each sweep compiles for itself.
"""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np
from absl import app, flags

from experiments import results
from experiments.speed import contestants, eight_seeds
from nplm_jax.runs import provenance
from nplm_jax.utils import io as io_lib
from nplm_jax.utils.text import markdown_table

HERE = pathlib.Path(__file__).parent
HOW = {'alone': [], 'together': ['--vectorize']}
TIMES = ('whole', 'updates')

_SIZES = contestants.define_several('sizes', eight_seeds.SIZES, 'The networks')
_ROUNDS = flags.DEFINE_integer('rounds', 2, 'Sweeps of each kind.')
_OUTPUT = flags.DEFINE_string('output', str(HERE / 'results' / 'vectorize.json'), 'Where the results lie.')
_SHOW = flags.DEFINE_boolean('show', False, 'Print the table of the results that are there, and run nothing.')
HEADER = ['vocabulary', 'h', 'batch', 'updates', *(f'{t}: alone, together, ratio' for t in TIMES), 'difference']


def write_text(path: pathlib.Path, V: int, words: int) -> None:
    """Words drawn by Zipf's law, each of V - 1 of them once at least; the rare-word symbol is one more."""
    share_V = 1 / np.arange(1, V)
    drawn = np.random.default_rng(1).choice(V - 1, words - (V - 1), p=share_V / share_V.sum())
    stream = np.random.default_rng(2).permutation(np.concatenate([np.arange(V - 1), drawn]))
    path.write_text(' '.join(f'w{i}' for i in stream))


def sweep(size: str, text: pathlib.Path, folder: pathlib.Path, how: str, compiled: pathlib.Path) -> dict[str, Any]:
    """One launch.py --sweep. Returns: its seconds, those inside updates, and each point's validation perplexity."""
    command = [sys.executable, 'launch.py', f'--config=experiments/speed/eight_seeds.py:{size}', '--sweep', *HOW[how]]
    command += [f'--config.corpus.path={text}', '--config.corpus.boundary_tokens=False', f'--workdir={folder}']
    started = time.perf_counter()
    environment = {**os.environ, 'JAX_COMPILATION_CACHE_DIR': str(compiled)}
    subprocess.run(command, cwd=HERE.parents[1], env=environment, stdout=subprocess.DEVNULL, check=True)
    seconds = time.perf_counter() - started
    points = [json.loads((folder / f'seed={s + 1}' / 'results.json').read_text()) for s in range(eight_seeds.SEEDS)]
    batch = eight_seeds.SIZES[size][2]
    updates = [point['updates'] * batch / point['words_per_second'] for point in points]
    return {
        'seconds': round(seconds, 1),
        'updates': round(max(updates) if how == 'together' else sum(updates), 1),
        'perplexity': [point['perplexity']['valid'] for point in points],
        'made': {key: points[0][key] for key in ('vocabulary', 'words', 'updates')},
    }


def measure(size: str) -> dict[str, Any]:
    """All rounds of one network; every second round backwards."""
    V, (n, m, h), batch, words, _ = eight_seeds.SIZES[size]
    found = {how: {key: [] for key in TIMES} for how in HOW}
    perplexities, made = {}, {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_text(folder / 'text', V, words)
        for i in range(_ROUNDS.value):
            for how in list(HOW)[:: -1 if i % 2 else 1]:
                done = sweep(size, folder / 'text', folder / f'{how}-{i}', how, folder / f'compiled-{how}-{i}')
                found[how]['whole'].append(done['seconds'])
                found[how]['updates'].append(done['updates'])
                print(f'{size}, {how}: {done["seconds"]} s', file=sys.stderr)
                perplexities[how], made = np.array(done['perplexity']), done['made']
    differ = float(np.abs(perplexities['together'] / perplexities['alone'] - 1).max())
    shape = {'n': n, 'm': m, 'h': h, 'batch': batch, **made}
    return {'size': size, **shape, 'seconds': found, 'largest_relative_difference': differ}


def make_table(found: dict[str, Any]) -> str:
    """One line a network: medians over the rounds, and the median of the rounds' ratios."""
    lines = []
    for row in found['rows']:
        cells = []
        for kind in TIMES:
            alone, together = (np.array(row['seconds'][how][kind]) for how in HOW)
            ratio = np.median(alone / together)
            cells.append(f'{np.median(alone):,.0f}, {np.median(together):,.0f}, {ratio:.2f}')
        sizes = [f'{row[key]:,}' for key in ('vocabulary', 'h', 'batch', 'updates')]
        lines.append([*sizes, *cells, f'{row["largest_relative_difference"]:.0e}'])
    about = f'{eight_seeds.SEEDS} seeds, seconds, {found["rounds"]} rounds, on {found["device"]}, '
    return f'{markdown_table(HEADER, lines)}\n\n{about}load {found["load_before"]:.1f} before.'


def main(_) -> None:
    """Runs the sweeps unless told only to show, and prints the table."""
    contestants.set_up()
    path = io_lib.expand('--output', _OUTPUT.value)
    if not _SHOW.value:
        path.parent.mkdir(parents=True, exist_ok=True)
        found = {
            'rounds': _ROUNDS.value,
            'load_before': os.getloadavg()[0],
            'rows': [measure(size) for size in _SIZES.value],
            'command': shlex.join(['python', '-m', 'experiments.speed.vectorize', *sys.argv[1:]]),
            **provenance.provenance(),
        }
        results.write(path, found)
    results.show(lambda: make_table(results.read(path.parent, path.stem)))


if __name__ == '__main__':
    app.run(main)
