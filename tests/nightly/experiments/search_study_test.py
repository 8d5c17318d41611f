"""The study of searches: its space, its smallest form, and what its table computes."""

import json

import pytest
from studies import start

from experiments.beyond.search import config, study
from nplm_jax.runs import experiment

optuna = pytest.importorskip('optuna')
SMALL = """
from configs import sentences
from experiments.beyond.search import config
from nplm_jax.config import settings as config_lib

def get_config():
    return config_lib.override(sentences.get_config(), {'name': 'search', 'train.epochs': 3, 'train.evaluate_every': 0})

search = config.search
"""


def test_the_grid_has_as_many_points_as_the_searches_have_trials_and_lies_in_the_space():
    points = 1
    for values in config.GRID.values():
        points *= len(values)
    assert points == study.TRIALS
    trial = optuna.create_study(sampler=optuna.samplers.GridSampler(config.GRID, seed=1)).ask()
    point = config.search(trial)
    assert all(point[key] in values for key, values in config.GRID.items()) and point.keys() == config.GRID.keys()
    assert experiment.load_settings(config.get_config()).train.max_steps == 2400


def test_every_method_searches_and_a_search_that_is_complete_is_not_run_again(tmp_path, capsys):
    (tmp_path / 'small.py').write_text(SMALL)
    words = [
        f'--config={tmp_path}/small.py',
        f'--workdir={tmp_path}/runs',
        f'--output={tmp_path}/results',
        '--trials=2',
    ]
    assert start('experiments.beyond.search.study', words) == 0
    table = capsys.readouterr().out.rpartition('| search')[2]

    def read():
        return {path.stem: json.loads(path.read_text()) for path in tmp_path.glob('results/*.json')}

    measured = read()
    assert measured.keys() == {f'{method}-1' for method in study.METHODS} and table.count('| 2      |') == 3
    for each in measured.values():
        assert len(each['trials']) == 2 and each['trials'][0]['test'] > 1
        assert all(trial['validations'] > 0 and trial['seconds'] >= 0 for trial in each['trials'])
    grid = [trial['point'] for trial in measured['grid-1']['trials']]
    assert all(point['optimizer.learning_rate'] in config.GRID['optimizer.learning_rate'] for point in grid)
    assert start('experiments.beyond.search.study', words) == 0
    assert read() == measured  # the seconds of each trial, too
    assert capsys.readouterr().out.rpartition('| search')[2] == table


def test_the_table_has_the_best_of_the_same_work():
    trials = [
        {'state': 'complete', 'valid': 9.0, 'test': 8.0, 'validations': 2},
        {'state': 'pruned', 'valid': 1.0, 'test': None, 'validations': 1},
        {'state': 'complete', 'valid': 5.0, 'test': 6.0, 'validations': 4},
    ]
    lines = study.make_table(
        [{'method': 'tpe', 'seed': 1, 'trials': trials[:2]}, {'method': 'random', 'seed': 2, 'trials': trials}]
    ).splitlines()
    cells = [[cell.strip() for cell in line.split('|')[1:-1]] for line in lines]
    assert cells[0][-1].endswith(' 3')
    assert cells[2][1:] == ['1', '2', '1', '3', '9.0', '8.0', '9.0']
    assert cells[3][1:] == ['2', '3', '1', '7', '5.0', '6.0', '9.0'] and cells[4][1:] == ['-'] * 7
