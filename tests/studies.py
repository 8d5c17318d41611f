"""Starts a study within this process, in the same way as `python -m experiments.STUDY`."""

import functools
import runpy
import warnings
from typing import Any

import pytest
from helpers import no_app_missing

from experiments import study


@functools.cache
def entry(module: str) -> dict[str, Any]:
    """Returns the arguments that a module passes to `study.run` when it runs as a program."""
    calls: list[dict[str, Any]] = []
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter('ignore', RuntimeWarning)  # if another study has imported the module
        patch.setattr(study, 'run', lambda doc, **others: calls.append({'doc': doc, **others}))
        with no_app_missing():
            runpy.run_module(module, run_name='__main__', alter_sys=True)
    (call,) = calls
    return call


def start(module: str, words: list[str]) -> int:
    """Runs a study within this process, and returns its exit code."""
    try:
        study.run(**{**entry(module), 'argv': words})
    except SystemExit as end:
        assert isinstance(end.code, int)
        return end.code
    return 0
