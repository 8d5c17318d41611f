"""The contestants of experiments/speed do the same updates; what the scripts print is what is committed."""

import json
import os
import pathlib
import subprocess
import sys
import types

import jax
import numpy as np
import pytest

from configs import brown
from experiments.speed import contestants, race

ROOT = pathlib.Path(__file__).parents[2]
TORCH = ('torch_eager', pytest.param('torch_compile', marks=pytest.mark.slow))


@pytest.fixture(params=['mlp1', 'mlp3', 'mlp9'])  # direct and hidden, direct alone, hidden alone
def problem(request):
    config = brown.get_config(request.param)
    config.model.dropout = 0.0
    config.model.m, config.optimizer.decay, config.output.block_size = 6, 1e-2, 6
    config.model.h = min(config.model.h, 7)
    return contestants.make_problem(config, V=50, B=16, S=5, turns=3)


def run(name, problem, precision='float32'):
    if name.startswith('torch'):
        pytest.importorskip('torch')
    turn = contestants.find(name)(problem, precision)
    return np.concatenate([turn(), turn()])


@pytest.mark.filterwarnings('ignore:.torch.jit.script_method. is deprecated:DeprecationWarning')  # torch's own
@pytest.mark.parametrize('name', ['plain_jax', *TORCH])
def test_every_contestant_does_our_updates(problem, name):
    expected = run('ours', problem)
    assert expected[-1] < expected[0] - 0.05
    np.testing.assert_allclose(run(name, problem), expected, atol=1e-4)
    np.testing.assert_allclose(run(name, problem, 'bfloat16'), expected, atol=5e-2)


@pytest.mark.parametrize('backend,present,entered', [('gpu', False, True), ('cpu', False, False), ('cpu', True, True)])
def test_a_kernel_for_gpus_races_elsewhere_only_when_asked_for(monkeypatch, backend, present, entered):
    asked = types.SimpleNamespace(value=['ours', 'ours_pallas'], present=present)
    monkeypatch.setattr(race, '_WHO', asked)
    monkeypatch.setattr(jax, 'default_backend', lambda: backend)
    assert race.entered() == ['ours', 'ours_pallas'][: 1 + entered]


def test_the_products_of_an_update_are_counted(problem):
    wanted = problem.config.model
    P, K = (wanted.n - 1) * wanted.m, wanted.h
    assert problem.flops_a_word == 6 * (50 * (K + wanted.direct * P) + K * P)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(problem.params))


def script(name, *flags):
    command = [sys.executable, '-m', f'experiments.speed.{name}', *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_races_table_is_medians_and_the_ratio_of_the_first_contestant_to_each():
    def raced(name, rates):
        memory = {'start': 1_000_000, 'peak': 3_000_000}
        return {'contestant': name, 'precision': 'float32', 'words_per_second': rates, 'memory': memory}

    row = {'row': 'mlp9', 'flops_a_word': 10, 'raced': [raced('ours', [9, 20, 31]), raced('plain_jax', [9, 10, 10])]}
    found = {'batch': 2, 'steps': 3, 'rounds': 3, 'load_before': 0.5, 'device': 'x', 'rows': [row]}
    lines = race.make_table({**found, 'ceiling': {'float32': {'jax': 300.0, 'torch': 400.0}}}).splitlines()
    assert [c.strip() for c in lines[3].split('|')[2:-1]] == 'plain_jax float32 10 9-10 2.00 25% 3 1'.split()


def test_without_pytorch_the_race_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, 'torch', None)
    with pytest.raises(SystemExit, match='^race.py: needs PyTorch: pip install torch==2.13.0$'):
        race.measure('')


def test_a_size_without_plain_jax_is_shown_and_drawn(tmp_path):
    points = [
        {'batch': 1, 'words_per_second': {'ours, float32': [4.0, 5.0, 6.0], 'plain_jax, float32': [2.0]}},
        {'batch': 8, 'words_per_second': {'ours, float32': [50.0]}},
    ]
    found = {'axes': {'batch': points}, 'device': 'x', 'load_before': 0.0}
    (tmp_path / 'scaling.json').write_text(json.dumps(found))
    lines = script('scaling', '--show', f'--output={tmp_path / "scaling.json"}').splitlines()
    cells = [[c.strip() for c in line.split('|')[1:-1]] for line in lines[2:4]]
    assert cells == [['1', '200,000 (5)', '500,000 (2)'], ['8', '20,000 (50)', '-']]
    drawing = (
        f'import pathlib; from experiments.speed import scaling; scaling.draw({found!r}, pathlib.Path("figure.png"))'
    )
    environment = {**os.environ, 'PYTHONPATH': str(ROOT)}  # a process of its own: two scripts define the same flags
    subprocess.run([sys.executable, '-c', drawing], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / 'figure.png').stat().st_size


def test_sweeps_together_are_shown_by_their_medians(tmp_path):
    seconds = {'alone': [30.0, 60.0, 50.0], 'together': [20.0, 20.0, 25.0]}
    of = {how: dict.fromkeys(('whole', 'updates'), found) for how, found in seconds.items()}
    row = {'vocabulary': 1000, 'h': 2, 'batch': 3, 'updates': 4000, 'seconds': of, 'largest_relative_difference': 2e-7}
    found = {'rows': [row], 'rounds': 3, 'device': 'x', 'load_before': 0.0}
    (tmp_path / 'vectorize.json').write_text(json.dumps(found))
    line = script('vectorize', '--show', f'--output={tmp_path / "vectorize.json"}').splitlines()[2]
    cells = [c.strip() for c in line.split('|')[1:-1]]
    assert cells == ['1,000', '2', '3', '4,000', *['50, 20, 2.00'] * 2, '2e-07']


@pytest.mark.slow
def test_the_sweeps_that_are_compared_end_the_same(tmp_path):
    script('vectorize', '--sizes=large', '--rounds=1', f'--output={tmp_path / "vectorize.json"}')
    (row,) = json.loads((tmp_path / 'vectorize.json').read_text())['rows']
    assert row['vocabulary'] == 16_384 and row['largest_relative_difference'] < 1e-5


@pytest.mark.slow
def test_time_to_quality_is_when_the_target_is_first_reached(tmp_path):
    often = ('--config.train.evaluate_every=50', '--config.train.epochs=100')
    script('quality', '--config=configs/sentences.py', '--target=2', f'--output={tmp_path}', *often)
    found = json.loads((tmp_path / 'quality_sentences.json').read_text())
    assert found['reached'] <= 2 and 0 < found['seconds_to_target'] <= found['seconds'] and found['epoch'] < 100
    script('quality', '--config=configs/sentences.py', '--target=1', f'--output={tmp_path}', *often)
    assert json.loads((tmp_path / 'quality_sentences.json').read_text())['seconds_to_target'] is None
    assert 'never' in script('quality', '--show', f'--output={tmp_path}')
