"""One trial of a search: its training, what it reports to its study, and how it ended."""

import dataclasses
import pathlib
import sys
import time
from collections.abc import Mapping
from typing import Any

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import TrialState

from nplm_jax.apps.sweeps import search_storage, sweep_points
from nplm_jax.config.settings import Settings
from nplm_jax.inference.perplexity import nll_to_perplexity
from nplm_jax.runs import experiment, workdir
from nplm_jax.training.milestones import Progress, Schedule
from nplm_jax.training.train import Pruned
from nplm_jax.utils.errors import BadInput, NonFiniteError

_POLL = 5  # seconds at most between two looks at the trials of other processes


@dataclasses.dataclass
class Report:
    """Reports each validation of a run to its trial, and asks whether to prune it.

    Trials are compared at the same number of validations: updates of batches of different sizes are not the same.

    Attributes:
        trial: the trial.
        known: what an earlier start of the trial reported.
    """

    trial: optuna.Trial
    known: Mapping[int, float]

    def __call__(self, progress: Progress, schedule: Schedule) -> bool:
        """Returns whether to stop the run: the trial is to be pruned, or it is another process's now."""
        if is_lost(self.trial):
            return True
        number = -(-progress.step // schedule.evaluate_every)
        if number not in self.known:
            self.trial.report(nll_to_perplexity(progress.valid_nll), number)
        self.trial.set_user_attr('seconds', round(progress.seconds, 1))
        return self.trial.should_prune()


def train(settings: Settings, folder: pathlib.Path, *rest: Any) -> dict[str, Any]:
    """Calls `experiment.run`, once a process that was suspended and then counted as lost has left the folder."""
    says = True
    while True:
        try:
            return experiment.run(settings, folder, *rest)
        except workdir.FolderInUse as error:
            if says:
                print(f'{error} (waiting)', file=sys.stderr, flush=True)
            says = False
            wait()


def verdict(error: BaseException, point: sweep_points.Point | None) -> str | None:
    """Returns how the trial of a point ended; None if the error is not the point's, and another start may succeed."""
    if isinstance(error, BadInput) and point and error.key not in point.overrides:
        return None
    verdicts = {Pruned: 'pruned', NonFiniteError: 'diverged', BadInput: 'refused', UpdateFinishedTrialError: 'lost'}
    return verdicts.get(type(error))


def is_lost(trial: optuna.Trial) -> bool:
    """Returns whether another process counted the trial as lost, since this one was suspended."""
    return trial.study.get_trials(deepcopy=False)[trial.number].state != TrialState.RUNNING


def wait() -> None:
    """Waits before the next look at the trials of other processes."""
    time.sleep(min(_POLL, search_storage.HEARTBEAT))
