"""Tests that a type checker finds the types of the installed package, including those of lazy names."""

import re
import shutil
import subprocess
import sys
import sysconfig

import pytest
from helpers import ROOT

import nplm_jax

RIGHT = """\
from typing import assert_type

import numpy as np

import nplm_jax
from nplm_jax import Choice, LanguageModel, LoadedModel, Vocabulary
from nplm_jax.config.settings import Settings


def read(folder: str) -> float:
    run = nplm_jax.load(folder)
    assert_type(run, LoadedModel)
    settings, vocabulary, model = run.settings, run.vocabulary, run.model
    assert_type(settings, Settings)
    assert_type(vocabulary, Vocabulary)
    assert_type(model, LanguageModel)
    assert_type(settings.train.epochs, int)
    tokens = vocabulary.encode(['the', 'jury'])
    assert_type(tokens, np.ndarray)
    assert_type(model.score(tokens, slice(1, None)), np.ndarray)
    assert_type(model.score_lines([tokens]), list[np.ndarray])
    nplm_jax.sample(run, tokens, words=9, samples=1, choice=Choice(temperature=0.8))
    assert_type(nplm_jax.perplexity(run, tokens), float)
    return nplm_jax.perplexity(nplm_jax.mixture.equal([model, model]), tokens)
"""
WRONG = {  # a line -> what mypy says of it
    "nplm_jax.losd('runs/x')": 'has no attribute "losd"',
    'nplm_jax.load(3)': 'Argument 1 to "load" has incompatible type "int"',
    "nplm_jax.load('runs/x').model.score('the jury')": 'Argument 1 to "score"',
    "nplm_jax.load('runs/x').settings.train.hidden": 'has no attribute "hidden"',
    'nplm_jax.Choice(temperatur=1.0)': 'Unexpected keyword argument "temperatur"',
}


@pytest.fixture(scope='module')
def reported(tmp_path_factory):
    """The output of mypy for three files outside the repository, with the package installed in another Python."""
    folder = tmp_path_factory.mktemp('downstream')
    subprocess.run([sys.executable, '-m', 'venv', '--without-pip', folder / 'venv'], check=True)
    (site,) = (folder / 'venv').glob('lib/python*/site-packages')
    shutil.copytree(ROOT / 'nplm_jax', site / 'nplm_jax', ignore=shutil.ignore_patterns('__pycache__'))
    (site / 'requirements.pth').write_text(sysconfig.get_path('purelib'))
    (folder / 'right.py').write_text(RIGHT)
    (folder / 'wrong.py').write_text('\n'.join(['import nplm_jax', *WRONG]))
    names = (f'reveal_type(nplm_jax.{name})' for name in nplm_jax.__all__)
    (folder / 'names.py').write_text('\n'.join(['import nplm_jax', *names]))
    mypy = [sys.executable, '-m', 'mypy', '--strict', '--no-error-summary', '--cache-dir=cache']
    command = [*mypy, f'--python-executable={folder / "venv" / "bin" / "python"}', 'right.py', 'wrong.py', 'names.py']
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def test_a_right_use_passes_in_strict_mode_and_nothing_is_reported_of_the_package(reported):
    assert [line for line in reported if not line.startswith(('wrong.py', 'names.py'))] == []


@pytest.mark.parametrize('i', range(len(WRONG)), ids=list(WRONG))
def test_a_wrong_use_is_reported(reported, i):
    (line,) = (line for line in reported if line.startswith(f'wrong.py:{i + 2}: error'))
    assert [*WRONG.values()][i] in line


@pytest.mark.parametrize('i', range(len(nplm_jax.__all__)), ids=nplm_jax.__all__)
def test_a_name_has_a_type(reported, i):
    (line,) = (line for line in reported if line.startswith(f'names.py:{i + 2}: '))
    assert re.search(r'note: Revealed type is "(?!Any")', line), line
