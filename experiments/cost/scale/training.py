"""Compares training on a long text that is read from disk with training on Brown on the device: speed and memory.

    python -m experiments.cost.scale.training TEXT [--rounds=10]     measures, and writes results/training.json
    python -m experiments.cost.scale.training --quick                checks that losses from device and disk are close
    python -m experiments.cost.scale.training                        prints the table of the committed results

All contestants use |V| = 16,383 and the same network (configs/brown.py:large with noise-contrastive estimation). In
each round, they train for the same number of updates, one after the other. Speeds are compared by the median ratio over
the rounds.
"""

from __future__ import annotations

import os
import pathlib
import re
import statistics
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from configs import brown
from experiments import results, study
from experiments.cost.scale import generate
from experiments.sources import of_module
from nplm_jax.config import settings as config_lib
from nplm_jax.config.settings import Settings
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs.experiment import load_settings
from nplm_jax.runs.loading import load_dataset
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training.step import TrainState, execute_steps
from nplm_jax.training.training_run import TrainingRun
from nplm_jax.utils.errors import NonFiniteError, require

RESULTS = pathlib.Path(__file__).parent / 'results' / 'training.json'
_TEXT = {'corpus.name': 'text', 'corpus.tokens': 'whitespace'}
CONTESTANTS = {  # name -> changes to the config
    'Brown, on the device': {},
    'Brown, from the disk': {'train.input': 'mapped'},
    'the text, from the disk': {'train.input': 'mapped', **_TEXT},
}
QUICK = {  # for --quick: the same text and network
    name: {**_TEXT, 'train.input': source, 'model.m': 8, 'model.h': 8, 'train.steps_per_execution': 5}
    for name, source in (('the text, on the device', 'device'), ('the text, from the disk', 'mapped'))
}


def make_settings(changes: Mapping[str, Any], path: str) -> Settings:
    """Returns the settings of a contestant with the given changed keys."""
    config = brown.get_config('large')
    changes = {'output.kind': 'nce', **changes}
    if changes.get('corpus.name') == 'text':
        changes |= {'corpus.path': path, 'corpus.train': 0.99, 'corpus.valid': 0.005}
    return load_settings(config_lib.override(config, changes))


def memory() -> dict[str, int]:
    """Returns the resident megabytes of this process: anonymous memory and mapped files."""
    status = pathlib.Path('/proc/self/status').read_text()
    return {name: int(re.findall(rf'{name}:\s+(\d+)', status)[0]) // 1024 for name in ('RssAnon', 'RssFile', 'VmHWM')}


def train(run: TrainingRun, num_chunks: int, state: TrainState, step: int) -> tuple[TrainState, int, float, np.ndarray]:
    """Trains some chunks. Returns the state, the update number, the words per second, and the last chunk's losses."""
    started, first = time.perf_counter(), step
    for _ in range(num_chunks):
        chunk = run.chunk(state, step)
        state, nll_S = execute_steps(*chunk)
        jax.block_until_ready(nll_S)
        step += chunk.num_steps
    rate = (step - first) * run.program.batch_size / (time.perf_counter() - started)
    return state, step, rate, np.asarray(nll_S)


def table(flags: study.Flags) -> str:
    """Returns one row per contestant, and the resident memory."""
    measured = results.load(flags.output)
    speeds, ratios = measured['speeds'], measured['ratios']
    rows = [
        [name, f'{measured["words"][name]:,}', f'{statistics.median(speeds[name]):,.0f}', f'{ratios[name]:.2f}']
        for name in speeds
    ]
    first, last = (measured['resident'][i] for i in (0, -1))
    memory = [f'{m["RssAnon"]} + {m["RssFile"]} of mapped files' for m in (first, last)]
    line = f'Resident megabytes: {memory[0]} after the first round, {memory[1]} after the last.'
    return markdown_table(['text', 'training words', 'words/s', 'ratio'], rows) + '\n\n' + line


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_argument(
        'text', nargs='?', metavar='TEXT', help='text file to train on; default: print the committed results'
    )
    parser.add_argument('--rounds', type=study.positive(int), default=10, help='number of rounds to measure')
    parser.add_argument('--chunks', type=study.positive(int), default=20, help='number of chunks of updates per round')
    parser.add_output_path(RESULTS)
    parser.add_quick(rounds=1, chunks=2, output='runs/quick/training.json')


def main(flags: study.Flags) -> None:
    """Measures and writes the results."""
    if flags.quick:
        with generate.small_text(20_000) as text:
            measure(flags, text, QUICK)
    else:
        require(os.path.exists(flags.text), 'TEXT', flags.text, 'the file or folder does not exist')
        measure(flags, flags.text, CONTESTANTS)


def measure(flags: study.Flags, text: str, contestants: Mapping[str, Mapping[str, Any]]) -> None:
    """Measures the contestants and writes the results after each round.

    Raises:
        NonFiniteError: With --quick, the mean losses of the last chunk differ by more than a tenth.
    """
    runs = {n: prepare_run(s, load_dataset(s)) for n, keys in contestants.items() for s in [make_settings(keys, text)]}
    states: dict[str, Any] = {name: (run.init_state(), 0) for name, run in runs.items()}
    states = {name: train(runs[name], flags.chunks, *state[:2]) for name, state in states.items()}  # compiles
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    resident = [memory()]
    first, words = next(iter(runs)), {name: len(run.data.train) for name, run in runs.items()}
    facts = {'words': words, **of_module('experiments.cost.scale.training')}
    for _ in range(flags.rounds):
        for name, run in runs.items():
            states[name] = train(run, flags.chunks, *states[name][:2])
            speeds[name].append(states[name][2])
        resident.append(memory())
        ratios = {n: statistics.median(a / b for a, b in zip(speeds[n], speeds[first])) for n in runs}
        measured = {'speeds': speeds, 'ratios': ratios, 'resident': resident}
        results.write(flags.output, {**facts, **measured})
    nll = {name: float(state[3].mean()) for name, state in states.items()}
    if flags.quick and not np.allclose(list(nll.values()), nll[first], rtol=0.1):  # word orders differ
        raise NonFiniteError(f'the mean losses differ: {nll}')


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=table, measure_if='text')
