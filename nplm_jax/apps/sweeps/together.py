"""Trains several runs in a single compiled program, if their parameters have the same shapes."""

import contextlib
import signal
from collections.abc import Iterable, Sequence
from typing import Any

from nplm_jax.config import settings as config_lib
from nplm_jax.config.settings import Settings
from nplm_jax.reporting import catalog
from nplm_jax.runs.experiment import run
from nplm_jax.runs.loading import Path
from nplm_jax.runs.program_from_settings import updates_rows
from nplm_jax.runs.session import RunSession, open_session
from nplm_jax.runs.shared_corpus import SharedCorpus
from nplm_jax.runs.signals import interruptible
from nplm_jax.training.train import Trained, Training, train
from nplm_jax.training.vmapped import RUN_ERRORS, fit_many
from nplm_jax.utils.errors import BadInput, NonFiniteError
from nplm_jax.utils.io import expand


def group_compatible(all_settings: Iterable[Settings]) -> list[list[int]]:
    """Groups runs that can be trained together.

    Args:
        all_settings: The settings of each run.

    Returns:
        The groups, each a list of indices into `all_settings`, ordered by their first index. A run on several devices
        and a count-based model each form a separate group.
    """
    members: dict[Any, list[int]] = {}
    for number, settings in enumerate(all_settings):
        one_device = settings.parallel.data == settings.parallel.model == 1
        group = _common(settings) if settings.is_neural and one_device else number
        members.setdefault(group, []).append(number)
    return list(members.values())


def _common(settings: Settings) -> Any:
    """Returns the settings that must be equal for networks to be trained together."""
    may_differ = {'seed', 'name', *(f'optimizer.{field}' for field in settings.optimizer.traced)}
    values = config_lib.to_flat(settings).items()
    kept = tuple((k, v) for k, v in values if k not in may_differ and not k.startswith('paper.'))
    return kept, updates_rows(settings)


def run_many(
    all_settings: Sequence[Settings], folders: Sequence[Path], command: str, notes: set[str] | None = None
) -> list[dict[str, Any] | Exception]:
    """Runs the networks of a group from `group_compatible` with the same results as separate runs.

    Args:
        all_settings: The settings of each run.
        folders: The folder of each run.
        command: See `run`.
        notes: See `run`.

    Returns:
        For each run, the result of `run`, or the BadInput or NonFiniteError that ended the run.

    Raises:
        training.train.Interrupted: SIGINT or SIGTERM arrived during training. All runs are saved.
    """
    if len(all_settings) == 1:
        try:
            return [run(all_settings[0], folders[0], command, notes=notes)]
        except (BadInput, NonFiniteError) as error:
            return [error]
    corpus = SharedCorpus(all_settings[0])
    num_left = sum(catalog.finished(expand('--workdir', folder)) is None for folder in folders)
    outcomes: dict[int, Any] = {}
    with contextlib.ExitStack() as stack, interruptible() as interrupted:
        sessions: dict[int, RunSession] = {}
        trainings: dict[int, Training] = {}
        trained: dict[int, Trained] = {}
        for i, (settings, folder) in enumerate(zip(all_settings, folders)):
            try:
                session = stack.enter_context(open_session(settings, folder, command, corpus, num_left))
                sessions[i] = session
                if training_run := session.training_run:
                    trainings[i] = train(training_run, session.store, session.reporter, interrupted, session.started)
            except RUN_ERRORS as error:
                outcomes[i] = error
        numbers = list(trainings)
        for group in group_compatible(sessions[i].settings for i in numbers):  # recorded precisions may differ
            for n, outcome in zip(group, fit_many([trainings[numbers[n]] for n in group])):
                i = numbers[n]
                if isinstance(outcome, Trained):
                    trained[i] = outcome
                else:
                    outcomes[i] = sessions[i].explain(outcome) if isinstance(outcome, NonFiniteError) else outcome
        for i in sessions.keys() - outcomes.keys():
            try:
                outcomes[i] = sessions[i].finish(trained.get(i), notes)
            except RUN_ERRORS as error:
                outcomes[i] = error
    for outcome in outcomes.values():
        if isinstance(outcome, Exception) and not isinstance(outcome, (BadInput, NonFiniteError)):
            raise outcome
    if signal_number := interrupted():  # the signal arrived after the last update
        signal.raise_signal(signal_number)
    return [outcomes[i] for i in range(len(all_settings))]
