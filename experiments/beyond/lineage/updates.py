"""Counts the updates that fit into five minutes of training, for each rung of the ladder without results.

    python -m experiments.beyond.lineage.updates --rungs=lstm,both --corpora=brown   with nothing else running

The largest count ever measured is kept in results/updates.json.
"""

from __future__ import annotations

import signal
import time
from typing import Any

import numpy as np

from experiments import results, study
from experiments.beyond.lineage import ladder
from nplm_jax.config import settings as config_lib
from nplm_jax.config.registry import is_neural
from nplm_jax.config.settings import Settings
from nplm_jax.runs import experiment, loading
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import train as train_lib
from nplm_jax.training.milestones import Progress
from nplm_jax.training.reporter import Reporter
from nplm_jax.utils.untrusted import read_json

BUDGET = 300  # seconds of training, without compilation, validation and evaluation
TIMED = 12  # seconds over which updates are timed, after the compilation and the first chunks


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


def measure(flags: study.Flags) -> None:
    """Counts the updates of the rungs, and prints them."""
    counted: dict[str, Any] = read_json(ladder.UPDATES)
    for corpus in flags.corpora:
        for rung in flags.rungs:
            settings = experiment.load_settings(ladder.without_budget(rung, corpus))
            if not is_neural(settings.model.name) or any((ladder.RESULTS / corpus).glob(f'{rung}-*.json')):
                continue
            updates, known = count_updates(settings), counted.setdefault(corpus, {})
            known[rung] = max(updates, known.get(rung, 0))
            results.write(ladder.UPDATES, counted)
            print(f'{corpus}, {rung}: {updates:,} updates in {BUDGET} s', flush=True)


def define(parser: study.StudyParser) -> None:
    """Adds the flags."""
    parser.add_names('--rungs', ladder.RUNGS, 'rungs')
    parser.add_names('--corpora', ladder.CORPORA, 'corpora')


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=measure)
