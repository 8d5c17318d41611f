"""Searches for hyperparameters with Optuna. Each trial is a run in its own folder. A database records the trials."""

import contextlib
import dataclasses
import functools
import os
import pathlib
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import TrialState

from nplm_jax.apps.sweeps import launchers, search_report, search_space, search_storage
from nplm_jax.apps.sweeps.search_report import trial_name
from nplm_jax.apps.sweeps.sweep_points import Point
from nplm_jax.config import settings as config_lib
from nplm_jax.config.settings import Settings
from nplm_jax.inference.perplexity import nll_to_perplexity
from nplm_jax.reporting.shell import command_line, python_command
from nplm_jax.reporting.text import null_to_inf
from nplm_jax.runs import experiment, run_inputs, workdir
from nplm_jax.runs.shared_corpus import SharedCorpus
from nplm_jax.training.milestones import Progress, Schedule
from nplm_jax.training.train import Pruned
from nplm_jax.utils.errors import BadInput, NonFiniteError, Resumable, require

_FINISHED = TrialState.COMPLETE, TrialState.PRUNED
_SHARED = 'corpus.', 'parallel.', run_inputs.TEACHER  # keys about the files and the machine, which all points share


class _Lost(BaseException):
    """An exception raised if another process has taken over the trial.

    It is a BaseException, because Optuna would record an Exception as a failure of the trial.
    """


@dataclasses.dataclass
class Report:
    """A callback that reports each validation of a run to the run's trial, and decides whether to prune the trial.

    Trials are compared after equal numbers of validations, because update counts of different batch sizes are not
    comparable.

    Attributes:
        trial: The trial.
        known: The validation perplexities that an earlier process reported for the trial.
    """

    trial: optuna.Trial
    known: Mapping[int, float]

    def __call__(self, progress: Progress, schedule: Schedule) -> bool:
        """Returns whether to stop the run because the trial is pruned or another process has taken the trial over."""
        number = _num_validations(progress.step, schedule)
        with contextlib.suppress(UpdateFinishedTrialError):
            if number not in self.known:
                self.trial.report(nll_to_perplexity(progress.valid_nll), number)
            self.trial.set_user_attr('seconds', round(progress.seconds, 1))
            return self.trial.should_prune()
        return True


@dataclasses.dataclass(frozen=True)
class Search:
    """A search for the lowest validation perplexity.

    Attributes:
        space: The search space.
        folder: The folder of the search, with a subfolder for each trial.
        url: The URL of the database.
        num_trials: The number of complete and pruned trials after which no new trial is started.
        words: The command line of the config: launch.py, --config and the keys set by flags.
        worker: The index of this process among the processes of the search. None if the index is unknown.
    """

    space: search_space.Space
    folder: pathlib.Path
    url: str
    num_trials: int
    words: tuple[str, ...]
    worker: int | None = None

    def run(self) -> str:
        """Runs the missing trials one after another. Returns the table of `search_report.write`.

        Raises:
            BadInput: The database cannot be used or contains another study, the folder contains trials of another
                study, or the text cannot be read.
            Resumable: The database stopped responding.
            training.train.Interrupted: A signal arrived. The same command continues the trial.
        """
        with contextlib.ExitStack() as stack:
            self.folder.mkdir(parents=True, exist_ok=True)
            if search_storage.is_sqlite(self.url):
                stack.enter_context(workdir.locked(self.folder))
            storage = stack.enter_context(search_storage.opened(self.url))
            study = self.open_study(storage)
            if search_storage.is_sqlite(self.url):  # no other process runs these
                for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
                    _give_back(study, trial.number, search_storage.MAX_RETRIES)
            self._finish(study)
            return search_report.write(study, self.folder, self._command_of)

    def run_jobs(
        self, num_workers: int, launcher: str, options: Mapping[str, Any], worker_flags: Sequence[str] = ()
    ) -> str:
        """Runs the missing trials in several processes. Returns the table of `search_report.write`.

        Args:
            num_workers: The number of processes.
            launcher: 'slurm', or 'local' for processes on this machine.
            options: The options of SLURM jobs.
            worker_flags: Additional command-line flags of the processes.

        Raises:
            BadInput: See `run`. Several processes cannot share a SQLite file.
            Resumable: All processes ended before the study was complete.
        """
        shown = 'must be 1 with SQLite; several processes require --storage=postgresql+psycopg://USER@HOST/DATABASE'
        require(num_workers == 1 or not search_storage.is_sqlite(self.url), '--jobs', num_workers, shown)
        self.folder.mkdir(parents=True, exist_ok=True)
        with search_storage.opened(self.url) as storage:
            study = self.open_study(storage)
            flags = (f'--search={self.num_trials}', f'--workdir={self.folder}', *worker_flags)
            jobs = [
                launchers.Job(f'worker-{k}', self.folder / f'worker-{k}', (*self.words, *flags, f'--process_id={k}'))
                for k in range(num_workers)
            ]
            if num_finished(study) < self.num_trials:
                is_complete = lambda _: num_finished(study) >= self.num_trials  # noqa: E731
                launchers.run(jobs, launcher, self.folder / '.jobs', is_complete, options, 1, num_workers)
            if (found := num_finished(study)) < self.num_trials:
                raise Resumable(f'the workers ended after {found} of {self.num_trials} trials')
            return search_report.write(study, self.folder, self._command_of)

    def open_study(self, storage: optuna.storages.RDBStorage) -> optuna.Study:
        """Creates the study, or loads it if this search has already started.

        Args:
            storage: The database.

        Raises:
            BadInput: See `run`.
        """
        name = self.space.settings.name
        pruner = optuna.pruners.HyperbandPruner()  # recommended by Optuna for TPE
        study = optuna.create_study(storage=storage, study_name=name, pruner=pruner, load_if_exists=True)
        seed = [self.space.settings.seed, self.worker or 0, len(study.get_trials(deepcopy=False))]
        alone = search_storage.is_sqlite(self.url) or self.worker is not None
        state = int(np.random.SeedSequence(seed).generate_state(1)[0]) if alone else None
        # With constant_liar=True, the sampler avoids points near those that other processes are training.
        study.sampler = optuna.samplers.TPESampler(seed=state, constant_liar=True)
        identity, has_folders = self.space.identity(), any(self.folder.glob('trial-*'))
        if 'identity' not in study.user_attrs:
            unknown = f'contains trials that are not in the database; {workdir.give_another(self.folder)}'
            require(not has_folders, '--workdir', self.folder, unknown)
            study.set_user_attr('identity', identity)
        search_space.check_same(name, study.user_attrs['identity'], identity)
        trained = [trial for trial in study.get_trials(deepcopy=False) if trial.value is not None]
        advice = 'give the folder of the search or another --config.name'
        missing = f'contains none of the {len(trained)} trials of {name} in the database; {advice}'
        require(not trained or has_folders, '--workdir', self.folder, missing)
        return study

    def _finish(self, study: optuna.Study) -> None:
        """Runs trials until the study is complete."""
        corpus, begun = SharedCorpus(self.space.settings), list[int]()
        if num_finished(study) < self.num_trials:  # a missing text ends the search, not each trial
            settings, values = self.space.settings, config_lib.to_flat(self.space.settings)
            digests = run_inputs.model_digests(settings) | run_inputs.text_digest(corpus.data)
            recorded = digests | study.user_attrs.get('inputs', {})
            for key in (key for key, digest in digests.items() if recorded[key] != digest):
                version = 'a different text' if key == run_inputs.TEXT else f'another version of {key}={values[key]}'
                run_inputs.refuse_changes(self.folder, f'the study was started with {version}')
            study.set_user_attr('inputs', digests)
        objective = functools.partial(self._objective, corpus, begun)
        enough = optuna.study.MaxTrialsCallback(self.num_trials, _FINISHED)
        while num_finished(study) < self.num_trials:
            try:
                study.optimize(objective, callbacks=[enough])
            except _Lost:
                begun.clear()
            except BaseException:
                for number in begun[-1:]:
                    _give_back(study, number)
                raise

    def _objective(self, corpus: SharedCorpus, begun: list[int], trial: optuna.Trial) -> float:
        """Trains one trial, adds its number to `begun`, and returns its validation perplexity.

        Raises:
            optuna.TrialPruned: The pruner stopped the trial, or its point cannot be trained.
            _Lost: This process sent no heartbeat for too long, and another process has taken over the trial.
        """
        begun.append(trial.number)
        frozen = trial.study.get_trials(deepcopy=False)[trial.number]
        name = trial_name(frozen)
        try:
            return self._train(corpus, trial, self.folder / name, Report(trial, frozen.intermediate_values))
        except UpdateFinishedTrialError:
            reason = 'this process sent no heartbeat for too long, so another process has taken over the trial'
            print(f'{name}: {reason}', file=sys.stderr, flush=True)
            raise _Lost from None

    def _train(self, corpus: SharedCorpus, trial: optuna.Trial, folder: pathlib.Path, report: Report) -> float:
        """Implements `_objective`, but raises UpdateFinishedTrialError instead of _Lost."""
        point = None
        try:
            point = self.space.point(trial)
            trial.set_user_attr('point', dict(point.overrides))
            command = self._command_of(point.overrides, f'--workdir={folder}')
            shared = corpus if point.settings.corpus == self.space.settings.corpus else None
            results = _run(point.settings, folder, command, shared, report)
        except (Pruned, NonFiniteError, BadInput) as error:
            if isinstance(error, BadInput) and point and not _is_of_point(error.key, point):
                raise  # the error does not depend on the point, so another attempt may succeed
            verdict = {Pruned: 'pruned', NonFiniteError: 'diverged', BadInput: 'refused'}[type(error)]
            trial.set_user_attr('state', verdict)
            advice = f'; to complete its training, run: {command}' if verdict == 'pruned' else ''
            print(f'{folder.name}: {error}{advice}', file=sys.stdout if advice else sys.stderr, flush=True)
            raise optuna.TrialPruned from None
        trial.set_user_attr('seconds', float(results['seconds']))
        return null_to_inf(results['perplexity']['valid'])

    def _command_of(self, point: Mapping[str, Any], *flags: str) -> str:
        """Returns the command line that trains a point as a single run."""
        keys = [f'--config.{key}={value}' for key, value in point.items()]
        words = [word.removeprefix(f'{os.getcwd()}/') for word in self.words]
        return command_line([python_command(), *words, *keys, *flags])


def _is_of_point(key: str, point: Point) -> bool:
    """Returns whether a point caused an error about a key: the config of the search is valid without the point."""
    is_own = key in config_lib.to_flat(point.settings) and not key.startswith(_SHARED)
    return is_own or key in point.overrides


def _run(settings: Settings, folder: pathlib.Path, *rest: Any) -> dict[str, Any]:
    """Calls `experiment.run`. Waits while a suspended process that has lost the trial still locks the folder."""
    while True:
        try:
            return experiment.run(settings, folder, *rest)
        except workdir.FolderInUse as error:
            print(f'{error} (waiting)', file=sys.stderr, flush=True)
            time.sleep(search_storage.HEARTBEAT)


def _num_validations(step: int, schedule: Schedule) -> int:
    """Returns the number of validations in the first `step` updates, including one after update `step`."""
    number = before = 0
    while before < step:
        now = schedule.next_boundary(before)
        number += schedule.due(before, now).evaluate
        before = now
    return number


def _give_back(study: optuna.Study, number: int, limit: int | None = None) -> None:
    """Requeues a trial that its process has abandoned. See `search_storage.retry`."""
    if study.get_trials(deepcopy=False)[number].state == TrialState.RUNNING:
        study.tell(number, state=TrialState.FAIL)
    trial = study.get_trials()[number]
    if trial.state == TrialState.FAIL:
        search_storage.retry(study, trial, limit)


def num_finished(study: optuna.Study) -> int:
    """Returns the number of complete and pruned trials."""
    return len(study.get_trials(deepcopy=False, states=_FINISHED))
