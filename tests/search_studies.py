"""Defines a small Optuna search, for the tests of launch.py --search."""

import contextlib
import re

import pytest
from helpers import launch

optuna = pytest.importorskip('optuna', reason="needs Optuna: pip install '.[search]'")

from nplm_jax.apps.sweeps import search_storage  # noqa: E402 (imports Optuna)

TrialState = optuna.trial.TrialState

STUDY = """
from configs import sentences

def get_config(row=''):
    return sentences.get_config()

def search(trial):
    return {
        'train.epochs': 4,
        'train.evaluate_every': 0,
        'model.h': trial.suggest_int('model.h', 2, 9),
        'optimizer.learning_rate': trial.suggest_float('optimizer.learning_rate', 1e-3, 1.0, log=True),
    }
"""


ROW = re.compile(r'\| (trial-\d+) .*\| (\w+) +\| +[\d.]+ +\|')


def ask(made):
    """Starts a trial on behalf of another process. Returns its number."""
    with pytest.warns(UserWarning, match='Heartbeat'):  # Optuna's
        return made.ask().number


def start(study, number, *flags):
    return launch(f'--config={study}', f'--search={number}', f'--workdir={study.parent}/runs', *flags)


@contextlib.contextmanager
def opened(url):
    """Yields the study in a database."""
    with search_storage.opened(url) as storage:
        yield optuna.load_study(study_name='sentences', storage=storage)


def trials(study):
    """Returns the trials of a search."""
    with opened(f'sqlite:///{study.parent}/runs/search.db') as made:
        return made.get_trials()
