"""Tests that `nplm train` and `nplm_jax.train` give the same results as launch.py from any folder."""

import json
import re
import subprocess
import sys
import types

import pytest
from absl import flags
from helpers import ROOT, call_main, refuses, usual_environment

import nplm_jax
from nplm_jax.cli import __main__ as cli
from nplm_jax.cli import launch_flags
from nplm_jax.reporting import notebook

SHORT = '--config.train.epochs=2', '--config.train.evaluate_every=0'


def nplm(folder, *words):
    return call_main(lambda: cli.main(list(words)), ['nplm', *words], folder)


def nplm_process(folder, *words):
    environment = usual_environment() | {'PYTHONPATH': str(ROOT)}
    line = [sys.executable, '-m', 'nplm_jax.cli', *words]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp('anywhere')


def test_a_config_trains_by_its_name(folder):
    done = nplm_process(
        folder, 'train', 'sentences', '--config.model.h=3', '--noconfig.train.unigram_bias', '--config.seed=2', *SHORT
    )
    assert done.returncode == 0, done.stderr
    run = folder / 'runs' / 'sentences__h_3__unigram_bias_False__seed_2__epochs_2__evaluate_every_0'
    (found,) = (folder / 'runs').iterdir()
    assert sorted(found.name.split('__')) == sorted(run.name.split('__'))
    config = json.loads((found / 'config.json').read_text())
    assert (config['model']['h'], config['train']['unigram_bias'], config['seed']) == (3, False, 2)
    assert 'train sentences --config.model.h=3' in json.loads((found / 'results.json').read_text())['command']


def test_a_config_of_ones_own_may_use_those_of_the_package(folder):
    lines = 'from configs import sentences', 'def get_config(row):', '    c = sentences.get_config(row)'
    (folder / 'mine.py').write_text('\n'.join((*lines, "    c.name = 'mine'", '    return c')))
    done = nplm(folder, 'train', 'mine.py:interpolated', '--workdir=own')
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / 'own' / 'results.json').read_text())['family'] == 'interpolated'


NO_FLAG = 'is not a flag; to set a config key, use --config.KEY=VALUE; '


@pytest.mark.parametrize(
    'words,message',
    [
        (['train', 'nope'], "--config='nope': must be one of ap_news, "),
        (['train', 'nope.py:row'], "--config='nope.py:row': must be one of ap_news, "),
        (
            ['train', 'sentences', '--config.model.hh=3'],
            '--config.model.hh: is not a key of model.family=nplm; the keys are ',
        ),
        (['train', 'sentences', '--model.h=3'], '--model.h: is not a flag; '),
        (['train', 'sentences', '--config.model.h=x'], "--config.model.h='x': must be an integer"),
        (['train', 'sentences', 'model.h=3'], 'model.h=3: is not a flag; '),
        (['train', 'brown', 'mlp1'], f'mlp1: {NO_FLAG}to choose a preset, append it '),
        (['train', 'text', f'{ROOT}/README.md'], f'{ROOT}/README.md: {NO_FLAG}to train on a text, use --config.corpus'),
        (['train'], 'the following arguments are required: CONFIG[:PRESET]'),
    ],
)
def test_a_mistake_is_one_line(folder, words, message):
    done = nplm(folder, *words)
    assert (done.returncode, done.stderr.count('\n')) == (2, 1), done.stderr
    assert done.stderr.startswith(message)


def test_train_returns_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    changes = {'train.epochs': 2, 'train.evaluate_every': 0}
    run = nplm_jax.train('sentences', changes=changes)
    assert run.folder == tmp_path / 'runs' / 'sentences__epochs_2__evaluate_every_0'
    assert run.results['epochs'] == 2 and run.settings.train.epochs == 2
    again = nplm_jax.train('sentences', run.folder, changes)  # the run is finished
    assert (again.folder, again.settings, again.results) == (run.folder, run.settings, run.results)
    with refuses('model.h'):
        nplm_jax.train('sentences', changes={'model.h': -1})


def test_a_notebook_shows_the_learning_curve_of_a_run_while_it_trains(tmp_path, monkeypatch):
    shown = []

    class Display:
        def __init__(self, image):
            shown.append(image)

        def update(self, image):
            shown.append(image)

    display = types.SimpleNamespace(Image=bytes, display=lambda image, display_id: Display(image))
    kernel = types.SimpleNamespace(kernel=None)
    ipython = types.SimpleNamespace(get_ipython=lambda: kernel, display=display)
    monkeypatch.setitem(sys.modules, 'IPython', ipython)
    monkeypatch.setattr(notebook, '_MIN_SECONDS', 0.0)
    nplm_jax.train('sentences', tmp_path / 'run', {'train.epochs': 40, 'train.evaluate_every': 20})
    assert len(shown) > 2 and all(image.startswith(b'\x89PNG') for image in shown)
    assert shown[-1] == (tmp_path / 'run' / 'learning_curve.png').read_bytes() or len(set(shown)) > 2


def test_a_program_that_is_no_notebook_shows_nothing(monkeypatch):
    assert not notebook.is_running()
    monkeypatch.setitem(sys.modules, 'IPython', types.SimpleNamespace(get_ipython=lambda: None))
    assert not notebook.is_running()


def test_help_names_every_flag():
    own = {flag.name for flag in flags.FLAGS.get_key_flags_for_module(launch_flags)}
    text = nplm(ROOT, 'train', '--help').stdout
    assert not {name for name in own - {'config'} if not re.search(rf'--{name}\b', text)}
