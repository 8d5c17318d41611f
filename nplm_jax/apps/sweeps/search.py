"""Hyperparameter search with Optuna: each trial is a run in a folder of its own, and a database counts the trials."""

import contextlib
import dataclasses
import functools
import os
import pathlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import optuna
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.trial import TrialState

from nplm_jax.apps.sweeps import launchers, search_report, search_space, search_storage, search_trial
from nplm_jax.apps.sweeps.search_report import trial_name
from nplm_jax.reporting.shell import command_line, python_command
from nplm_jax.reporting.text import null_to_inf
from nplm_jax.runs import run_inputs, workdir
from nplm_jax.runs.shared_corpus import SharedCorpus
from nplm_jax.runs.signals import Terminated
from nplm_jax.training.train import Interrupted, Pruned
from nplm_jax.utils.errors import BadInput, NonFiniteError, Resumable, require

_ENDS = (BadInput, OSError, StorageInternalError, Interrupted, KeyboardInterrupt, Terminated)  # of a process


class _NotNeeded(Exception):
    """Other processes run all trials that are missing."""


class _Left(BaseException):
    """This process left its trial; Optuna lets it pass and records nothing. Its cause, if any, ends the process."""


@dataclasses.dataclass(frozen=True)
class Search:
    """A search for the lowest validation perplexity.

    Attributes:
        space: what it varies.
        folder: its folder, in which each trial has its own.
        url: the URL of its database.
        num_trials: the number of trials, complete or pruned, that the study is to have.
        words: the command line of its config: launch.py, --config and the keys that flags set.
        worker: the number of this process of several; None if it is not known to be one.
        make_sampler: called with `seed`, makes what chooses the points.
        make_pruner: makes what stops trials; Optuna recommends Hyperband with TPE.
    """

    space: search_space.Space
    folder: pathlib.Path
    url: str
    num_trials: int
    words: tuple[str, ...]
    worker: int | None = None
    make_sampler: Callable[..., optuna.samplers.BaseSampler] = functools.partial(
        optuna.samplers.TPESampler,
        constant_liar=True,  # other processes do not choose the points that one trains
    )
    make_pruner: Callable[[], optuna.pruners.BasePruner] = optuna.pruners.HyperbandPruner

    def run(self) -> str:
        """Runs the trials that are missing, one after another. Returns what `search_report.write` returns.

        Raises:
            BadInput: the database cannot be used or holds another study, the folder has trials of another one, or the
                text cannot be read.
            Resumable: the database stopped answering.
            training.train.Interrupted: a signal came; the same command continues the trial.
        """
        with contextlib.ExitStack() as stack:
            self.folder.mkdir(parents=True, exist_ok=True)
            if search_storage.is_sqlite(self.url):
                stack.enter_context(workdir.locked(self.folder))
            storage = stack.enter_context(search_storage.opened(self.url))
            study = self.open_study(storage)
            if search_storage.is_sqlite(self.url):  # no other process runs these
                for trial in study.get_trials(states=(TrialState.RUNNING,)):
                    study.tell(trial.number, state=TrialState.FAIL)
                    search_storage.retry()(study, trial)
            self._finish(study, storage)
            return search_report.write(study, self.folder, self._command_of)

    def run_jobs(
        self, num_workers: int, on_slurm: bool, options: Mapping[str, str], worker_flags: Sequence[str] = ()
    ) -> str:
        """Runs the missing trials in several processes. Returns what `search_report.write` returns.

        Args:
            num_workers: the number of processes.
            on_slurm: submit them to SLURM instead of starting processes of this machine.
            options: the options of SLURM jobs.
            worker_flags: further flags of the processes.

        Raises:
            BadInput: as `run`, or several processes are to share a SQLite file.
            Resumable: all processes ended before the study had its trials.
        """
        shown = 'SQLite is for one process; several need --storage=postgresql+psycopg://USER@HOST/DATABASE'
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
                launchers.run(jobs, on_slurm, self.folder / '.jobs', is_complete, options, 1, num_workers)
            if (found := num_finished(study)) < self.num_trials:
                raise Resumable(f'the workers ended after {found} of {self.num_trials} trials')
            return search_report.write(study, self.folder, self._command_of)

    def open_study(self, storage: optuna.storages.RDBStorage) -> optuna.Study:
        """Returns the study, a new one or the one that this search began.

        Args:
            storage: the database.

        Raises:
            BadInput: see `run`.
        """
        name = self.space.name
        pruner = self.make_pruner()
        study = optuna.create_study(storage=storage, study_name=name, pruner=pruner, load_if_exists=True)
        seed = [self.space.settings.seed, self.worker or 0, len(study.get_trials(deepcopy=False))]
        alone = search_storage.is_sqlite(self.url) or self.worker is not None
        state = int(np.random.SeedSequence(seed).generate_state(1)[0]) if alone else None
        with search_storage.ignored_experimental():
            study.sampler = self.make_sampler(seed=state)
        identity, has_folders = self.space.identity(), any(self.folder.glob('trial-*'))
        if 'identity' not in study.user_attrs:
            if has_folders:
                advice = workdir.give_another(self.folder)
                raise BadInput('--workdir', f'has trials that the database does not know; {advice}', value=self.folder)
            study.set_user_attr('identity', identity)
        search_space.check_same(name, study.user_attrs['identity'], identity)
        trained = [trial for trial in study.get_trials(deepcopy=False) if trial.value is not None]
        if trained and not has_folders:
            raise BadInput(
                '--workdir',
                f'has none of the {len(trained)} trials that the database has of {name}; '
                'give the folder of the search, or another --config.name',
                value=self.folder,
            )
        return study

    def _check_text(self, study: optuna.Study, digest: Mapping[str, str]) -> None:
        """Records the digest of the text in a new study. Raises BadInput if the study is on another text."""
        if 'text' not in study.user_attrs:
            study.set_user_attr('text', digest)
        elif study.user_attrs['text'] != digest:
            run_inputs.refuse_changes(self.folder, 'the study was started on a different text')

    def _finish(self, study: optuna.Study, storage: optuna.storages.RDBStorage) -> None:
        """Runs trials until the study has enough."""
        corpus = SharedCorpus(self.space.settings)
        if num_finished(study) < self.num_trials:  # a text that is missing ends the search, not each trial
            self._check_text(study, run_inputs.text_digest(corpus.data))
        objective = functools.partial(self._objective, study, corpus)
        while num_finished(study) < self.num_trials:
            states = [trial.state for trial in study.get_trials(deepcopy=False)]
            waits = TrialState.WAITING in states
            if waits or len(states) - states.count(TrialState.FAIL) < self.num_trials:
                try:
                    study.optimize(objective, n_trials=1, catch=(_NotNeeded,))
                except _Left as left:
                    if left.__cause__:
                        raise left.__cause__ from None
                except UpdateFinishedTrialError:  # another process counted the trial as lost just now
                    pass
            else:
                search_trial.wait()
                search_storage.fail_silent_trials(study, storage)

    def _objective(self, study: optuna.Study, corpus: SharedCorpus, trial: optuna.Trial) -> float:
        """Trains one trial. Returns its validation perplexity.

        Raises:
            optuna.TrialPruned: the pruner stopped it, or its point cannot be trained.
            _NotNeeded: it is one too many.
            _Left: it is queued again; the cause is what ends this process, or None if another process queued it.
        """
        before = [t for t in study.get_trials(deepcopy=False) if t.number < trial.number]
        if sum(t.state != TrialState.FAIL for t in before) >= self.num_trials:
            raise _NotNeeded  # another process began the last trial at the same time
        frozen = study.get_trials(deepcopy=False)[trial.number]
        name, point = trial_name(frozen), None
        try:
            point = self.space.point(trial)
            trial.set_user_attr('point', dict(point.overrides))
            command = self._command_of(point.overrides, f'--workdir={self.folder / name}')
            shared = corpus if point.settings.corpus == self.space.settings.corpus else None
            report = search_trial.Report(trial, frozen.intermediate_values)
            results = search_trial.train(point.settings, self.folder / name, command, shared, report)
            trial.set_user_attr('seconds', float(results['seconds']))
            if search_trial.is_lost(trial):
                raise _Left
        except (Pruned, NonFiniteError, UpdateFinishedTrialError, *_ENDS) as error:
            verdict = search_trial.verdict(error, point)
            if search_trial.is_lost(trial):
                print(f'{name}: was silent for too long; another process continues it', file=sys.stderr, flush=True)
                raise _Left from (None if verdict else error)
            if not verdict:
                study.tell(trial.number, state=TrialState.FAIL)
                search_storage.requeue(study, study.get_trials()[trial.number])
                raise _Left from error
            advice = f'; to train it to its end: {command}' if verdict == 'pruned' else ''
            print(f'{name}: {error}{advice}', file=sys.stdout if advice else sys.stderr, flush=True)
            trial.set_user_attr('state', verdict)
            raise optuna.TrialPruned from None
        return null_to_inf(results['perplexity']['valid'])

    def _command_of(self, point: Mapping[str, Any], *flags: str) -> str:
        """Returns the command line that trains a point as a single run."""
        keys = [f'--config.{key}={value}' for key, value in point.items()]
        words = [word.removeprefix(f'{os.getcwd()}/') for word in self.words]
        return command_line([python_command(), *words, *keys, *flags])


def num_finished(study: optuna.Study) -> int:
    """Returns the number of trials that are complete or pruned."""
    states = (TrialState.COMPLETE, TrialState.PRUNED)
    return len(study.get_trials(deepcopy=False, states=states))
