"""Where a result comes from."""

import shlex
import sys

from nplm_jax.runs import provenance


def test_a_module_names_the_command_that_started_it(monkeypatch):
    monkeypatch.setattr(sys, 'argv', ['/somewhere/table.py', '--runs=a b', '--again'])
    source = provenance.of_module('a.table')
    assert shlex.split(source.pop('command')) == ['python', '-m', 'a.table', '--runs=a b', '--again']
    assert source == provenance.provenance()
