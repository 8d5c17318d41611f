"""What `--minutes` chooses, by speeds that are made up, and a run that it starts and resumes."""

import json

import numpy as np
import pytest
from helpers import launch, one_line, refuses

import nplm_jax
from configs import rows
from configs import text as text_config
from nplm_jax.runs import experiment, time_budget
from nplm_jax.runs.session import SharedCorpus


def random_text(num_words):
    words = np.random.default_rng(0).zipf(1.5, num_words) % 300
    return '\n\n'.join(' '.join(f'w{word}' for word in words[i : i + 50]) for i in range(0, num_words, 50))


@pytest.fixture
def text(tmp_path):
    path = tmp_path / 'text.txt'
    path.write_text(random_text(50_000))
    return path


@pytest.fixture
def data(text):
    return SharedCorpus(experiment.load_settings(config_of(text))).data


def config_of(path):
    config = text_config.get_config()
    config.corpus.path = str(path)
    return config


@pytest.fixture
def timed(monkeypatch):
    """An update takes a millisecond with 100 units, in proportion to their power 1.4; nothing else takes time."""
    widths = []

    def measure(settings, data, folder):
        widths.append(settings.model.h)
        return time_budget.Timing(1e-3 * (settings.model.h / 100) ** 1.4, 0.0, 1e-12)

    monkeypatch.setattr(time_budget, 'measure', measure)
    return widths


def test_a_warm_up_may_be_longer_than_the_timed_pass(text, data, tmp_path):
    typed = {'model.h': 8, 'model.m': 8, 'optimizer.warmup': 300}
    config = config_of(text)
    config.update_from_flattened_dict(typed)
    choice = time_budget.choose(config, typed, 1, rows.network, data, tmp_path / 'run')
    assert len(data.train) / 512 < 300 < choice.keys['train.max_steps']


@pytest.mark.nightly
def test_a_run_of_some_minutes_is_recorded_and_resumed(text, tmp_path, timed):
    folder = tmp_path / 'run'
    command = ['--config=text', f'--config.corpus.path={text}', '--config.model.h=8', '--config.model.m=8']
    command += ['--config.eval.words=500', '--config.train.valid_words=500', f'--workdir={folder}']
    done = launch(*command, '--minutes=0.0001')
    assert done.returncode == 0, done.stderr
    assert 'Chosen: 8 units' in done.stdout
    record, config = (json.loads((folder / name).read_text()) for name in ('minutes.json', 'config.json'))
    assert record['minutes'] == 0.0001
    assert config['train']['max_steps'] == record['keys']['train.max_steps']
    results = json.loads((folder / 'results.json').read_text())
    assert results['updates'] == record['keys']['train.max_steps']
    again = launch(*command, '--minutes=0.0001')
    assert again.returncode == 0 and json.loads((folder / 'results.json').read_text()) == results
    other = launch(*command, '--minutes=1')
    line = one_line(other.stderr, '--minutes=1.0')
    assert other.returncode == 2 and '0.0001' in line and str(folder) in line
    whole = json.loads((folder / 'minutes.json').read_text())
    for damage in (
        {'minutes': 'x'},
        {'keys': {'train.epochs': 2.5}},
        {'keys': {'model.family': 5}},
        {'reasons': [1]},
        {'reasons': ['\x1b[2J']},
        {'keys': {'model.h': [1]}},
        {'keys': {'model.family': 'somebody.code:Body'}},
        {'keys': {'corpus.name': 'brown'}},
        {'more': 1},
    ):
        (folder / 'minutes.json').write_text(json.dumps(whole | damage))
        with refuses('--workdir'):
            time_budget.read_choice(folder, 0.0001, rows.network)


@pytest.mark.nightly
def test_python_trains_for_some_minutes_as_the_command_does(text, tmp_path, timed):
    changes = {'corpus.path': str(text), 'model.h': 8, 'model.m': 8, 'eval.words': 500, 'train.valid_words': 500}
    run = nplm_jax.train('text', tmp_path / 'run', changes, minutes=0.0001)
    assert run.results['updates'] == run.settings.train.max_steps > 0
    flags = [f'--config.{key}={value}' for key, value in changes.items()]
    done = launch('--config=text', *flags, f'--workdir={run.folder}', '--minutes=0.0001')
    assert done.returncode == 0, done.stderr


def test_a_network_is_timed(text, data, tmp_path):
    changes = rows.network(8, 1, len(data.train)) | {'train.valid_words': 500}
    config = time_budget.apply_keys(config_of(text), changes, [])
    speed = time_budget.measure(experiment.load_settings(config), data, tmp_path)
    assert 0 < speed.update < speed.start and 0 < speed.score < speed.update
