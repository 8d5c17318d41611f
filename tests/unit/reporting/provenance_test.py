"""Tests the recorded origin of a result."""

import shlex
import subprocess
import sys

from experiments.sources import of_module
from nplm_jax.reporting import provenance


def test_a_module_names_the_command_that_started_it(monkeypatch):
    monkeypatch.setattr(sys, 'argv', ['/somewhere/table.py', '--runs=a b', '--again'])
    source = of_module('a.table')
    assert shlex.split(source.pop('command')) == ['python', '-m', 'a.table', '--runs=a b', '--again']
    assert source == provenance.provenance()


def test_a_package_in_the_folder_of_another_project_has_no_commit(tmp_path, monkeypatch):
    git = ['git', '-C', str(tmp_path), '-c', 'user.name=a', '-c', 'user.email=a@b']
    for words in (['init', '-q'], ['commit', '-q', '--allow-empty', '-m', 'a']):
        subprocess.run([*git, *words], check=True)
    module = tmp_path / 'provenance.py'
    module.touch()
    monkeypatch.setattr(provenance, '__file__', str(module))
    assert provenance.provenance()['commit'] == 'unknown'
    for words in (['add', '.'], ['commit', '-q', '-m', 'b']):
        subprocess.run([*git, *words], check=True)
    assert len(provenance.provenance()['commit']) == 12
