"""Tests the errors if lm-evaluation-harness is not installed or the run does not exist."""

import runpy
import sys
import types

import pytest
from helpers import refuses

from nplm_jax.utils.errors import BadInput

HARNESS = 'nplm_jax.apps.evaluation.harness'


def test_a_missing_harness_is_one_line(monkeypatch):
    for name in {'lm_eval', *(name for name in sys.modules if name.startswith('lm_eval.'))}:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, HARNESS, raising=False)
    monkeypatch.delitem(sys.modules, 'nplm_jax.lm_eval', raising=False)
    with pytest.raises(SystemExit) as stop:
        runpy.run_module('nplm_jax.lm_eval', run_name='__main__')
    assert stop.value.code.startswith('lm_eval: ') and 'pip install' in stop.value.code
    with refuses('lm_eval'):
        runpy.run_module('nplm_jax.lm_eval', run_name='nplm_jax.lm_eval')


def test_a_run_that_is_refused_is_one_line(monkeypatch):
    error = BadInput('RUN', 'not there', value='nosuch')

    def refuse():
        raise error

    modules = {
        HARNESS: types.SimpleNamespace(NplmLM=object),
        'lm_eval': types.SimpleNamespace(),
        'lm_eval.__main__': types.SimpleNamespace(cli_evaluate=refuse),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, 'nplm_jax.lm_eval', raising=False)
    with pytest.raises(SystemExit) as stop:
        runpy.run_module('nplm_jax.lm_eval', run_name='__main__')
    assert stop.value.code == str(error)
