"""Trains rows of the table that have no committed result, the shortest first.

    python -m experiments.frontier.train                     on a machine that does nothing else
    python -m experiments.frontier.train --until=17:30       begins nothing after that time of day
    python -m experiments.frontier.train --rows=one_minute --corpora=wikitext2 --seeds=2
    python -m experiments.frontier.train --rows=five_minutes_taught   one that learns from two others
    python -m experiments.frontier.train --rows=five_minutes_x4       four, mixed
    python -m experiments.frontier.train --show              the table of the seeds

A finished run's results.json is written to results/ROW.json here or in the study of WikiText-2, that of another seed
than the first to results/seeds/ROW-SEED.json, with the processor seconds and the wall time of its process. A row that
learns from other runs, or mixes them, trains those first that are missing from --runs; its seconds include theirs.
"""

from __future__ import annotations

import argparse
import itertools
import pathlib
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

from experiments import results, study
from nplm_jax.reporting.text import markdown_table
from nplm_jax.utils.io import expand
from nplm_jax.utils.untrusted import read_json

ROOT = pathlib.Path(__file__).parents[2]
_STUDIES = ROOT / 'experiments'
CORPORA = {'brown': _STUDIES / 'frontier' / 'results', 'wikitext2': _STUDIES / 'wikitext2' / 'results'}
# By row, its seeds.
ROWS = {'one_minute': (1, 2, 3), 'five_minutes': (1, 2, 3), 'twenty_minutes': (1,), 'one_hour': (1,)}
SEEDS = sorted({seed for seeds in ROWS.values() for seed in seeds})
# Rows on Brown that learn from other runs: the row that is trained, and the seeds of those runs of it that teach it.
TAUGHT = {'five_minutes_taught': ('five_minutes', (1, 2))}
_SMALL = [('five_minutes', seed) for seed in (1, 2, 3, 4)]
_LARGE = [('twenty_minutes', seed) for seed in (1, 2)]
_FIVE_GRAM = 'modified_kneser_ney_5', 1
# Rows that mix other runs, with weights learned on the validation words: the corpus, and the row and seed of each run.
MIXED = {
    'five_minutes_x4': ('brown', _SMALL),
    'twenty_minutes_x2': ('brown', _LARGE),
    'mixture_of_7': ('brown', [*_SMALL, *_LARGE, _FIVE_GRAM]),
    'twenty_minutes_one_hour': ('wikitext2', [('twenty_minutes', 1), ('one_hour', 1)]),
    'mixture_of_4': ('wikitext2', [*_LARGE, ('one_hour', 1), _FIVE_GRAM]),
}


def launch(config: str, folder: pathlib.Path, *flags: str) -> dict[str, Any]:
    """Trains a run, or goes on with it. Returns its results, and what its process took if it trained all of the run.

    Args:
        config: The config and its row.
        folder: The run's folder.
        *flags: Further flags.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    is_new = not folder.exists()
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, 'launch.py', f'--config={config}', f'--workdir={folder}', *flags]
    subprocess.run(command, cwd=ROOT, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    process = {'processor_seconds': round(used), 'process_seconds': round(time.monotonic() - started, 1)}
    return {**read_json(folder / 'results.json'), **(process if is_new else {})}


def add_flags(parser: study.StudyParser, runs: str) -> None:
    """Adds the flags of a study that trains what is missing: until when, and the folder of the runs."""
    parser.add_until()
    parser.add_argument('--runs', default=runs, metavar='DIR', help=argparse.SUPPRESS)


def is_due(path: pathlib.Path, flags: study.Flags) -> bool:
    """Returns whether to train what has its result in this file: it is missing, and --until is not over."""
    return not path.exists() and not (flags.until and time.time() > flags.until)


def measure(flags: study.Flags) -> None:
    """Trains what is missing."""
    runs = expand('--runs', flags.runs)
    for row in flags.rows:
        for corpus, seed in _cases(row, flags):
            path = _path(corpus, row, seed)
            if is_due(path, flags):
                results.write(path, _train(corpus, row, seed, runs))
    print(show(flags))


def _cases(row: str, flags: study.Flags) -> Iterable[tuple[str, int]]:
    """Returns the corpora and the seeds of a row that the flags ask for."""
    if row in ROWS:
        return itertools.product(flags.corpora, [seed for seed in ROWS[row] if str(seed) in flags.seeds])
    corpus = MIXED[row][0] if row in MIXED else 'brown'
    return [(corpus, 1)] if corpus in flags.corpora else []


def _train(corpus: str, row: str, seed: int, runs: pathlib.Path) -> dict[str, Any]:
    """Trains a row, and first what it is made of. Returns its results."""
    if row in MIXED:
        return _mix(row, runs)
    return _teach(row, runs) if row in TAUGHT else _launch(corpus, row, seed, runs)[1]


def _launch(corpus: str, row: str, seed: int, runs: pathlib.Path) -> tuple[pathlib.Path, dict[str, Any]]:
    """Trains a row, or goes on with it. Returns the run's folder, and what `launch` returns."""
    folder = runs / f'{corpus}-{_path(corpus, row, seed).stem}'
    return folder, launch(f'configs/{corpus}.py:{row}', folder, f'--config.seed={seed}')


def _teach(row: str, runs: pathlib.Path) -> dict[str, Any]:
    """Trains a row of TAUGHT after its teachers. Returns its results, with the seconds of the teachers in its own."""
    base, seeds = TAUGHT[row]
    teachers = [_launch('brown', base, seed, runs) for seed in seeds]
    seconds = sum(found['seconds'] for _, found in teachers)
    names = ','.join(str(folder) for folder, _ in teachers)
    found = launch(f'configs/brown.py:{base}', runs / f'brown-{row}', f'--config.output.teacher={names}')
    return {**found, 'seconds': found['seconds'] + seconds, 'teacher_seconds': seconds}


def _mix(row: str, runs: pathlib.Path) -> dict[str, Any]:
    """Mixes the runs of a row of MIXED. Returns its results, with the sums of their seconds and free parameters."""
    corpus, members = MIXED[row]
    trained = [_launch(corpus, *member, runs) for member in members]
    output = runs / f'{corpus}-{row}.json'
    folders = [str(folder) for folder, _ in trained]
    subprocess.run([sys.executable, '-m', 'nplm_jax.cli', 'mix', *folders, f'--output={output}'], cwd=ROOT, check=True)
    mixed = read_json(output)
    sums = {key: sum(found.get(key, 0) for _, found in trained) for key in ('parameters', 'seconds')}
    shared = {key: trained[0][1][key] for key in ('corpus', 'vocabulary', 'calibration_words')}
    perplexities = {'perplexity': mixed['mixtures']['learned'], 'equal_weights': mixed['mixtures']['equal']}
    models = [{key: model[key] for key in ('name', 'valid', 'test', 'weight')} for model in mixed['models']]
    return {'name': f'{corpus}-{row}', **shared, 'family': 'mixture', **perplexities, 'models': models, **sums}


def show(_: study.Flags) -> str:
    """Returns the table of the seeds, and of what smoothing and calibration gain."""
    table = []
    for corpus, row in itertools.product(CORPORA, ROWS):
        paths = (_path(corpus, row, seed) for seed in ROWS[row])
        if not (found := [read_json(path) for path in paths if path.exists()]):
            continue
        tests = [each['perplexity']['test'] for each in found]
        shares = [1 - each['postprocessing']['after'] / each['postprocessing']['before'] for each in found]
        means = f'{statistics.mean(tests):.1f}', f'{statistics.mean(shares):.1%}'
        table.append([corpus, row, ', '.join(f'{test:.1f}' for test in tests), *means])
    return markdown_table(['corpus', 'row', 'test, by seed', 'mean', 'smoothing and calibration'], table)


def _path(corpus: str, row: str, seed: int) -> pathlib.Path:
    """Returns the file of a result. Those of the first seed are rows of the tables of their study."""
    folder = CORPORA[corpus]
    return folder / f'{row}.json' if seed == 1 else folder / 'seeds' / f'{row}-{seed}.json'


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    parser.add_names('--rows', (*ROWS, *TAUGHT, *MIXED), 'rows')
    parser.add_names('--corpora', CORPORA, 'corpora')
    parser.add_names('--seeds', map(str, SEEDS), 'seeds')
    add_flags(parser, 'runs/frontier')


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=measure, show=show)
