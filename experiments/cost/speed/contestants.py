"""Contestants of the race: each makes a function for one turn of training from a Problem and a precision.

All contestants start from the same parameters, see the same words in the same order and make full updates: forward,
backward, SGD with the regulariser R(theta), and dropout. Without dropout they return the same losses.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from experiments.cost.speed.problem import Problem, Turn

MODULES = {  # each contestant is a function of this name in a module that is imported when it races
    'ours': 'jax_contestants',
    'plain_jax': 'jax_contestants',
    'torch_eager': 'torch_contestants',
    'torch_compile': 'torch_contestants',
}
NAMES = tuple(MODULES)


def package_of(name: str) -> str:
    """Returns the module that a contestant needs to be installed."""
    return 'torch' if MODULES[name] == 'torch_contestants' else 'jax'


def find(name: str) -> Callable[[Problem, str], Turn]:
    """Returns the contestant of that name."""
    return getattr(importlib.import_module(f'experiments.cost.speed.{MODULES[name]}'), name)
