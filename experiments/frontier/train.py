"""Trains rows of the table that have no committed result, the shortest first.

    python -m experiments.frontier.train                     on a machine that does nothing else
    python -m experiments.frontier.train --until=17:30       begins nothing after that time of day
    python -m experiments.frontier.train --rows=one_minute --corpora=wikitext2

A finished run's results.json is written to results/ROW.json here or in the study of WikiText-2, with the processor
seconds and the wall time of its process.
"""

from __future__ import annotations

import argparse
import pathlib
import resource
import subprocess
import sys
import time
from typing import Any

from experiments import results, study
from nplm_jax.utils.io import expand, read_json

ROOT = pathlib.Path(__file__).parents[2]
_STUDIES = ROOT / 'experiments'
CORPORA = {'brown': _STUDIES / 'frontier' / 'results', 'wikitext2': _STUDIES / 'wikitext2' / 'results'}
ROWS = 'one_minute', 'five_minutes'


def launch(config: str, folder: pathlib.Path) -> dict[str, Any]:
    """Trains a run, or goes on with it. Returns its results, and what its process took.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, 'launch.py', f'--config={config}', f'--workdir={folder}']
    subprocess.run(command, cwd=ROOT, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    process = {'processor_seconds': round(used), 'process_seconds': round(time.monotonic() - started, 1)}
    return {**read_json(folder / 'results.json'), **process}


def measure(flags: study.Flags) -> None:
    """Trains what is missing."""
    runs = expand('--runs', flags.runs)
    for row in flags.rows:
        for corpus in flags.corpora:
            path = CORPORA[corpus] / f'{row}.json'
            if path.exists() or (flags.until and time.time() > flags.until):
                continue
            results.write(path, launch(f'configs/{corpus}.py:{row}', runs / f'{corpus}-{row}'))


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    parser.add_names('--rows', ROWS, 'rows')
    parser.add_names('--corpora', CORPORA, 'corpora')
    parser.add_until()
    parser.add_argument('--runs', default='runs/frontier', metavar='DIR', help=argparse.SUPPRESS)


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=measure)
