"""Trains the rungs of the ladder that have no committed result yet, on Brown and some of them on WikiText-2.

    python -m experiments.lineage.train                     all that is missing, most telling first
    python -m experiments.lineage.train --until=17:30       stops by itself before that time of day
    python -m experiments.lineage.train --rungs=lstm,both --seeds=2 --corpora=brown
    python -m experiments.lineage.train --time              measures the updates of five minutes; on an idle machine

The same command goes on where it was stopped. A finished run's results.json is copied to results/CORPUS/RUNG-SEED.json,
with its settings.
"""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from experiments import results, study
from experiments.lineage import ladder
from nplm_jax.config import settings as config_lib
from nplm_jax.config.registry import is_neural
from nplm_jax.config.settings import Settings
from nplm_jax.runs import experiment, loading, signals
from nplm_jax.runs.signals import Terminated
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import train as train_lib
from nplm_jax.training.milestones import Progress
from nplm_jax.training.reporter import Reporter
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import expand
from nplm_jax.utils.untrusted import read_json

ROOT = pathlib.Path(__file__).parents[2]
BUDGET = 300  # seconds of training, without compilation, validation and evaluation
TIMED = 12  # seconds over which updates are timed, after the compilation and the first chunks
# The baseline first, then the rungs that answer most.
ORDER = (
    *('counts', 'lstm', 'attention', 'both', 'wide', 'averages', 'mogrifier', 'qrnn', 'regularised'),
    *('tied', 'residual', 'moments', 'sampled', 'batches', 'paper'),
)
_SAVING = 60  # seconds before --until at which a training is told to stop


class Point(NamedTuple):
    """A run: a rung on a corpus from a seed."""

    corpus: str
    rung: str
    seed: int

    @property
    def row(self) -> str:
        """What follows the config file and a colon on the command line."""
        return ladder.row_of(self.rung, self.corpus)

    @property
    def result(self) -> pathlib.Path:
        """The committed result."""
        return ladder.RESULTS / self.corpus / f'{self.rung}-{self.seed}.json'


def points(names: list[str], seeds: list[int], names_of_corpora: list[str]) -> Iterator[Point]:
    """Yields the runs of a study in the order in which they are trained; a count-based model has one seed."""
    for corpus in names_of_corpora:
        for seed in seeds:
            for rung in ORDER:
                is_studied = corpus == ladder.BROWN or rung in (*ladder.ON_WIKITEXT_2, 'counts')
                if rung in names and is_studied and (seed == seeds[0] or rung != 'counts'):
                    yield Point(corpus, rung, seed)


def train(point: Point, folder: pathlib.Path, until: float) -> bool:
    """Trains one run, or goes on with it, and keeps its result. Returns: whether it has ended before `until`.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    run = folder / f'{point.corpus}-{point.rung}-{point.seed}'
    config = f'--config=experiments/lineage/ladder.py:{point.row}'
    command = [sys.executable, 'launch.py', config, f'--config.seed={point.seed}', f'--workdir={run}']
    with subprocess.Popen(command, cwd=ROOT) as child:
        try:
            child.wait(max(0.0, until - _SAVING - time.time()) if until else None)
        except (subprocess.TimeoutExpired, Terminated) as stop:
            child.send_signal(signal.SIGTERM)
            child.wait()
            if isinstance(stop, Terminated):
                raise
        except KeyboardInterrupt:  # the terminal has sent it to the child too
            child.wait()
            raise
    if child.returncode in (128 + signal.SIGTERM, -signal.SIGTERM):  # the second before it has a handler
        return False
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    settings = ladder.record(ladder.get_config(point.row))
    results.write(point.result, {**read_json(run / 'results.json'), 'settings': settings})
    return True


class Clock(Reporter):
    """Marks the time after each chunk, and ends the training when enough of them have been timed."""

    def __init__(self) -> None:
        self.marks: list[tuple[int, float]] = []

    def trained(self, progress: Progress, nll_S: np.ndarray) -> None:
        """See `Reporter.trained`."""
        self.marks.append((progress.step, time.perf_counter()))

    def signal(self) -> int:
        """Returns SIGTERM once the time is over, the argument `interrupted` of `train`."""
        timed = self._timed()
        return signal.SIGTERM if len(timed) > 1 and timed[-1][1] - timed[0][1] > TIMED else 0

    def seconds_per_update(self) -> float:
        """Returns the mean over the timed chunks."""
        (first, start), *_, (last, end) = self._timed()
        return (end - start) / (last - first)

    def _timed(self) -> list[tuple[int, float]]:
        return self.marks[3:]  # before that the program compiles, once for each length of a chunk


def count_updates(settings: Settings) -> int:
    """Returns how many updates fit into the budget, to three digits."""
    unlimited = {'train.epochs': 1000, 'train.evaluate_every': 2**31 - 1}
    run = prepare_run(config_lib.replace(settings, unlimited), loading.load_dataset(settings))
    clock = Clock()
    try:
        train_lib.fit(train_lib.train(run, None, clock, clock.signal))
    except train_lib.Interrupted:
        pass
    return int(float(f'{BUDGET / clock.seconds_per_update():.3g}'))


def time_updates(names: list[str], names_of_corpora: list[str], runs: pathlib.Path) -> None:
    """Measures the updates of the budget for rungs without runs; the most that were ever measured are kept."""
    counted: dict[str, Any] = read_json(ladder.UPDATES)
    for corpus, rung, _ in points(names, [1], names_of_corpora):
        settings = experiment.load_settings(ladder.without_budget(rung, corpus))
        has_begun = [*(ladder.RESULTS / corpus).glob(f'{rung}-*.json'), *runs.glob(f'{corpus}-{rung}-*')]
        if is_neural(settings.model.name) and not has_begun:
            updates, known = count_updates(settings), counted.setdefault(corpus, {})
            known[rung] = max(updates, known.get(rung, 0))
            results.write(ladder.UPDATES, counted)
            print(f'{corpus}, {rung}: {updates:,} updates in {BUDGET} s', flush=True)


def measure(flags: study.Flags) -> None:
    """Trains what is missing, or measures the updates."""
    signals.raise_on_sigterm()
    runs = expand('--runs', flags.runs)
    if flags.time:
        return time_updates(flags.rungs, flags.corpora, runs)
    if flags.until and flags.until < time.time() + _SAVING:
        raise BadInput('--until', f'must be {_SAVING} s or more from now')
    wanted = list(points(flags.rungs, flags.seeds, flags.corpora))
    for point in wanted:
        ladder.get_config(point.row)  # refuses rungs whose updates are not counted before any is trained
    missing = [point for point in wanted if not point.result.exists()]
    for number, point in enumerate(missing, start=1):
        print(f'{number} of {len(missing)}: {point.corpus}, {point.rung}, seed {point.seed}', flush=True)
        is_late = flags.until and time.time() > flags.until - _SAVING
        if is_late or not train(point, runs, flags.until):
            print(f'stopped; {len(missing) - number + 1} left, the same command goes on')
            return
    print('nothing is missing')


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    parser.add_names('--rungs', ladder.RUNGS, 'rungs')
    parser.add_names('--corpora', ladder.CORPORA, 'corpora')
    parser.add_argument('--seeds', type=study.counts, default=[1, 2], metavar='N,...', help='default: 1,2')
    words = 'stop before this time of day; the trainings go on when the command is given again; default: never'
    parser.add_until(words)
    parser.add_argument(
        '--runs', default='runs/lineage', metavar='DIR', help='where the runs lie; default: runs/lineage'
    )
    parser.add_switch('--time', 'measure the updates of five minutes of each rung without a result, and train nothing')


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=measure)
