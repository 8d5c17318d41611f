"""What the harness says where its package is missing."""

import runpy
import sys

import pytest

from nplm_jax.utils.errors import BadInput

HARNESS = 'nplm_jax.apps.evaluation.harness'


def test_a_missing_harness_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, 'lm_eval', None)
    monkeypatch.delitem(sys.modules, HARNESS, raising=False)
    monkeypatch.delitem(sys.modules, 'nplm_jax.lm_eval', raising=False)
    with pytest.raises(SystemExit, match='^lm_eval: not installed: pip install'):
        runpy.run_module('nplm_jax.lm_eval', run_name='__main__')
    with pytest.raises(BadInput, match='^lm_eval: not installed'):
        runpy.run_module('nplm_jax.lm_eval', run_name='nplm_jax.lm_eval')
