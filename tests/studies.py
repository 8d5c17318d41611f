"""Starts a study in this process, as `python -m experiments.STUDY` does in one of its own."""

import contextlib
import functools
import runpy
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from experiments import study

APPS = 'nplm_jax.apps'


@contextlib.contextmanager
def no_app_missing() -> Iterator[None]:
    """Skips a test, or a module of tests, that imports a study of an app whose folder is deleted."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or '').rpartition('.')[0] != APPS:
            raise
        pytest.skip(f'needs the app {error.name}', allow_module_level=True)


@functools.cache
def entry(module: str) -> dict[str, Any]:
    """Returns the arguments that a module as a program gives to `study.run`."""
    calls: list[dict[str, Any]] = []
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter('ignore', RuntimeWarning)  # another study has imported the module
        patch.setattr(study, 'run', lambda doc, **others: calls.append({'doc': doc, **others}))
        with no_app_missing():
            runpy.run_module(module, run_name='__main__', alter_sys=True)
    (call,) = calls
    return call


def start(module: str, words: list[str]) -> int:
    """Starts a study in this process. Returns its exit code."""
    try:
        study.run(**{**entry(module), 'argv': words})
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code
    return 0
