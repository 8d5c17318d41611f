"""Tests that the flag --scheduler finds the cluster class that an app declares."""

import contextlib
import sys
import types

from helpers import refuses

from nplm_jax.cli import commands, scheduler
from nplm_jax.executors import workers


def test_an_address_needs_an_app_that_declares_a_cluster(monkeypatch):
    monkeypatch.setattr(commands, 'declared', lambda name: {})
    with refuses('--scheduler'), scheduler.use('tcp://host:1'):
        pass


def test_the_declared_class_is_called_with_the_address(monkeypatch):
    module = types.SimpleNamespace(Cluster=contextlib.nullcontext)  # its value is the address
    monkeypatch.setitem(sys.modules, 'an_app', types.SimpleNamespace(made=module))
    monkeypatch.setitem(sys.modules, 'an_app.made', module)
    monkeypatch.setattr(commands, 'declared', lambda name: {'an_app': 'made:Cluster'})
    with scheduler.use('tcp://host:1'):
        assert workers.active(is_large=True) == 'tcp://host:1'
    assert isinstance(workers.active(is_large=True), workers.Processes)
