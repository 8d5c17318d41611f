"""Tests that the plug-ins of docs/howto/plugins.md, in a separate folder, train, resume, score and generate."""

import io
import json
import sys

import pytest
from helpers import check_resumed, launch, numbers, one_line, plugin_folder, refuses, small_settings
from plugins_page import CONFIG, KINDS, NAMES, OF_A_ROW

from nplm_jax.config import plugins
from nplm_jax.runs import loading

OWN = {  # replaces the settings of tests/helpers.py
    **NAMES,
    'model.power': 2.0,
    'model.direct': False,
    'model.h': 200,
    'model.dropout': 0.25,
    'optimizer.learning_rate': 0.01,
}


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The working folder, with the files from the page."""
    with plugin_folder(tmp_path, monkeypatch, my_models=KINDS, my_config=CONFIG, my_brown=OF_A_ROW):
        yield tmp_path


def test_they_train_score_and_generate(scratch, nplm_command, monkeypatch):
    flags = '--config=my_config.py', '--config.optimizer.options.nesterov=true', '--config.train.epochs=2'
    folders = [scratch / 'runs' / f'power_{power}' for power in ('0.0', '2.0')]
    for folder, power in zip(folders, (0, 2)):
        trained = launch(*flags, f'--config.model.power={power}', f'--workdir={folder}', cwd=scratch)
        assert trained.returncode == 0, trained.stderr
    valid = [json.loads((folder / 'results.json').read_text())['perplexity']['valid'] for folder in folders]
    assert valid[1] < valid[0] < 17  # the second-to-last word is more informative than the word before it
    config = json.loads((folders[1] / 'config.json').read_text())
    assert {section: config[section]['options'] for section in ('corpus', 'optimizer')} == {
        'corpus': {'count': 200, 'seed': 1},
        'optimizer': {'momentum': 0.9, 'nesterov': True},
    }
    assert config['model'] == {'family': NAMES['model.family'], 'n': 5, 'm': 12, 'h': 20, 'power': 2.0}
    assert (config['output']['smoothing'], config['optimizer']['hold'], config['corpus']['num_letters']) == (0.1, 10, 4)
    refused = launch(*flags, f'--workdir={folders[1]}', '--config.model.power=1', cwd=scratch)
    line = one_line(refused.stderr, '--workdir')
    assert 'model.power=2.0' in line and '1.0' in numbers(line)

    monkeypatch.setattr(sys, 'stdin', io.TextIOWrapper(io.BytesIO(b'one plus two is three .\n')))
    with refuses('runs/power_2.0/config.json') as error:
        loading.load(folders[1])
    assert '--plugins=my_models' in error.value.problem
    printed, _ = nplm_command('score', folders[1], '--plugins=my_models')
    assert printed[0].startswith('one=')
    assert loading.load(folders[1]).settings.model.power == 2.0  # named on the command line of this process
    monkeypatch.delenv(plugins.ENVIRONMENT)
    loading.load(folders[1], plugins=['my_models'])
    monkeypatch.setenv(plugins.ENVIRONMENT, 'another, my_models')
    printed, _ = nplm_command('generate', folders[1], '--words=6', '--samples=2')
    assert [len(line.split()) for line in printed] == [6, 6]
    sys.modules.pop('my_models')
    monkeypatch.chdir('/')
    sys.path.remove(str(scratch))
    with refuses('runs/power_2.0/config.json') as error:
        loading.load(folders[1])
    assert 'delete' not in str(error.value)  # the run is valid


@pytest.mark.usefixtures('scratch')
def test_stopped_and_resumed_is_bit_for_bit_the_same(tmp_path):
    check_resumed(small_settings(OWN), tmp_path)


def test_a_factory_of_optax_is_an_optimizer(tmp_path):
    changes = {'optimizer.name': 'optax.contrib:muon', 'optimizer.options.beta': 0.9}
    check_resumed(small_settings({**changes, 'optimizer.learning_rate': 0.02}), tmp_path)
