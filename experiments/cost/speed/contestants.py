"""The contestants of the race. Given a Problem and a precision, each creates a function that trains for one turn.

All contestants start from the same parameters, see the same words in the same order and make full updates: forward,
backward, SGD with the regularizer R(theta), and dropout. Without dropout, they return the same losses.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from experiments.cost.speed.problem import Problem, Turn

MODULES = {  # contestant -> the module with a function of this name, which is imported when the contestant races
    'ours': 'jax_contestants',
    'plain_jax': 'jax_contestants',
    'torch_eager': 'torch_contestants',
    'torch_compile': 'torch_contestants',
}
NAMES = tuple(MODULES)


def package_of(name: str) -> str:
    """Returns the package that a contestant requires."""
    return 'torch' if MODULES[name] == 'torch_contestants' else 'jax'


def find(name: str) -> Callable[[Problem, str], Turn]:
    """Returns the contestant with the given name."""
    return getattr(importlib.import_module(f'experiments.cost.speed.{MODULES[name]}'), name)
