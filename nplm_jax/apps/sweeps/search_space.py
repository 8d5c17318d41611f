"""Loads the hyperparameter search space that `search(trial)` in a config file defines, and identifies searches."""

import contextlib
import dataclasses
import functools
import inspect
import json
import runpy
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

import optuna

from nplm_jax.apps.sweeps import sweep_points
from nplm_jax.config import settings as config_lib
from nplm_jax.config.settings import Settings
from nplm_jax.runs import experiment
from nplm_jax.runs.experiment import Config
from nplm_jax.utils.errors import BadInput, require

_OF_MACHINE = ('parallel.', 'corpus.path', 'corpus.valid_path', 'corpus.test_path')  # keys not recorded in a study


@dataclasses.dataclass(frozen=True)
class Space:
    """A search space.

    Attributes:
        path: The config file.
        search: The function `search(trial)` in the file, which returns a point: a dictionary of flattened keys.
        config: The config that the points modify.
    """

    path: str
    search: Callable[[Any], Mapping[str, Any]]
    config: Config

    def point(self, trial: optuna.Trial) -> sweep_points.Point:
        """Returns the point of a trial, applied to the config and checked.

        Raises:
            BadInput: search() failed, or the point has an unknown key, a wrong type or an invalid value.
            optuna.exceptions.OptunaError: search() raised TrialPruned, or the database failed.
        """
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings('ignore', 'Choices for a categorical', UserWarning)  # rejected below
                point = self.search(trial)
        except optuna.exceptions.OptunaError:  # the trial is pruned, or the database failed
            raise
        except Exception as error:  # noqa: BLE001 (a search space is Python and may raise anything)
            raise BadInput('--search', f'search() of {self.path} failed: {type(error).__name__}: {error}') from None
        for name, distribution in trial.distributions.items():
            for choice in getattr(distribution, 'choices', ()):
                survives = isinstance(choice, (bool, int, float, str, type(None)))  # in the database
                problem = f'{name} has the choice {choice!r}; choices must be numbers, strings, True, False or None'
                require(survives, '--search', ..., f'search() of {self.path}: {problem}')
        chosen = [key for key in point if key in config_lib.CHOOSERS] if isinstance(point, Mapping) else []
        problem = f'sets {", ".join(chosen)}, but a search can only vary keys of one config'
        require(not chosen, '--search', ..., f'search() of {self.path} {problem}')
        settings = sweep_points.apply(self.config, point, '--search').settings
        name = self.settings.name  # the name of the study as well
        return sweep_points.Point(name, config_lib.replace(settings, {'name': name}), dict(point))

    @functools.cached_property
    def settings(self) -> Settings:
        """The settings of the config."""
        return experiment.load_settings(self.config)

    def identity(self) -> dict[str, Any]:
        """Returns the identity of a study: the config without machine-dependent keys, and the source of search()."""
        flat = config_lib.to_flat(self.settings)
        recorded = {key: value for key, value in flat.items() if not key.startswith(_OF_MACHINE)}
        return {'config': json.loads(json.dumps(recorded, default=str)), 'search': inspect.getsource(self.search)}


def load(path: str, config: Config, typed: Collection[str] = ()) -> Space:
    """Loads the search space of a config file and checks it with one trial.

    Args:
        path: A config file with a function `search(trial)`.
        config: The config that the points modify.
        typed: The keys that flags set.

    Raises:
        BadInput: The file has no search(), its point is invalid, it suggests no values, or the point sets a key that a
            flag also sets.
    """
    optuna.logging.set_verbosity(optuna.logging.CRITICAL)  # the search prints its own messages
    function: Any = runpy.run_path(path).get('search')
    missing = f'{path} must define search(trial), which returns a dictionary of config keys'
    require(inspect.isfunction(function), '--search', ..., missing)
    space = Space(path, function, config)
    with contextlib.suppress(optuna.TrialPruned):
        point = space.point(trial := optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0)).ask())
        advice = 'call trial.suggest_int, suggest_float or suggest_categorical'
        require(bool(trial.params), '--search', ..., f'search() of {path} suggests no values; {advice}')
        sweep_points.refuse_ignored(typed, [point], f'search() of {path}')
    return space


def check_same(name: str, recorded: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    """Raises BadInput if a study was created with a different config or search space."""
    there, now = recorded['config'], identity['config']
    keys = sorted(key for key in there.keys() | now.keys() if there.get(key) != now.get(key))
    different = [f'{key} is {there.get(key)!r} in the database and {now.get(key)!r} now' for key in keys]
    if not keys and recorded['search'] != identity['search']:
        different = ['search() has changed']
    problem = f'the database contains a different study named {name} ({"; ".join(different)})'
    require(not different, '--storage', ..., f'{problem}; choose another database or another --config.name')
