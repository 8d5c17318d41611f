"""Speed and memory of training on a long text that is read from the disk, beside Brown on the device.

    python -m experiments.cost.scale.training TEXT [--rounds=10]     measures, and writes results/training.json
    python -m experiments.cost.scale.training                        prints the table of the committed results

Both have |V| = 16,383 and the same network (configs/brown.py:large with noise-contrastive estimation). In each round
each trains the same number of updates, one after the other; speeds are compared by the median of the rounds' ratios.
"""

from __future__ import annotations

import os
import pathlib
import re
import statistics
import time
from typing import Any

import jax

from configs import brown
from experiments import results, study
from experiments.sources import of_module
from nplm_jax.config import settings as config_lib
from nplm_jax.config.settings import Settings
from nplm_jax.reporting.text import markdown_table
from nplm_jax.runs.experiment import load_settings
from nplm_jax.runs.loading import load_dataset
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training.step import TrainState, execute_steps
from nplm_jax.training.training_run import TrainingRun
from nplm_jax.utils.errors import require

RESULTS = pathlib.Path(__file__).parent / 'results'
CONTESTANTS = {  # name -> changes of the config
    'Brown, on the device': {},
    'Brown, from the disk': {'train.input': 'mapped'},
    'the text, from the disk': {'train.input': 'mapped', 'corpus.name': 'text', 'corpus.tokens': 'whitespace'},
}


def make_settings(name: str, path: str) -> Settings:
    """Returns the settings of a contestant."""
    config = brown.get_config('large')
    changes = {'output.kind': 'nce', **CONTESTANTS[name]}
    if changes.get('corpus.name') == 'text':
        changes |= {'corpus.path': path, 'corpus.train': 0.99, 'corpus.valid': 0.005}
    return load_settings(config_lib.override(config, changes))


def memory() -> dict[str, int]:
    """Returns the resident megabytes of this process: its own, and those of files that are mapped."""
    status = pathlib.Path('/proc/self/status').read_text()
    return {name: int(re.findall(rf'{name}:\s+(\d+)', status)[0]) // 1024 for name in ('RssAnon', 'RssFile', 'VmHWM')}


def train(run: TrainingRun, num_chunks: int, state: TrainState, step: int) -> tuple[TrainState, int, float]:
    """Trains some chunks. Returns the state, its update, and the words a second."""
    started, first = time.perf_counter(), step
    for _ in range(num_chunks):
        chunk = run.chunk(state, step)
        state, nll_S = execute_steps(*chunk)
        jax.block_until_ready(nll_S)
        step += chunk.num_steps
    return state, step, (step - first) * run.program.batch_size / (time.perf_counter() - started)


def table() -> str:
    """Returns a row for each contestant of the committed results, and the resident memory."""
    measured = results.read(RESULTS, 'training')
    speeds, ratios = ({n: measured[key][n] for n in CONTESTANTS} for key in ('speeds', 'ratios'))
    rows = [
        [name, f'{measured["words"][name]:,}', f'{statistics.median(speeds[name]):,.0f}', f'{ratios[name]:.2f}']
        for name in CONTESTANTS
    ]
    first, last = (measured['resident'][i] for i in (0, -1))
    memory = [f'{m["RssAnon"]} + {m["RssFile"]} of mapped files' for m in (first, last)]
    line = f'Resident megabytes: {memory[0]} after the first round, {memory[1]} after the last.'
    return markdown_table(['text', 'training words', 'words/s', 'ratio'], rows) + '\n\n' + line


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    parser.add_argument('text', nargs='?', metavar='TEXT', help='a file; default: print the committed results')
    parser.add_argument('--rounds', type=study.positive(int), default=10, help='rounds')
    parser.add_argument('--chunks', type=study.positive(int), default=20, help='chunks of updates in a round')


def main(flags: study.Flags) -> None:
    """Measures and writes the results."""
    require(os.path.exists(flags.text), 'TEXT', flags.text, 'does not exist')
    runs = {name: prepare_run(s, load_dataset(s)) for name in CONTESTANTS for s in [make_settings(name, flags.text)]}
    states: dict[str, Any] = {name: (run.init_state(), 0, 0.0) for name, run in runs.items()}
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
        results.write(RESULTS / 'training.json', {**facts, **measured})


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main, show=lambda _: table(), measure_if='text')
