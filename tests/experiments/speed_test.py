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
from experiments.speed import problem as problem_lib

ROOT = pathlib.Path(__file__).parents[2]
TORCH = ('torch_eager', pytest.param('torch_compile', marks=pytest.mark.slow))


@pytest.fixture(params=['mlp1', 'mlp3', 'mlp9'])  # direct and hidden, direct alone, hidden alone
def problem(request):
    config = brown.get_config(request.param)
    config.model.dropout = 0.0
    config.model.m, config.optimizer.decay, config.output.block_size = 6, 1e-2, 6
    config.model.h = min(config.model.h, 7)
    return problem_lib.make_problem(config, V=50, B=16, S=5, turns=3)


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
    monkeypatch.setattr(race, '_CONTESTANTS', asked)
    monkeypatch.setattr(jax, 'default_backend', lambda: backend)
    assert race.entered() == ['ours', 'ours_pallas'][: 1 + entered]


def test_the_products_of_an_update_are_counted(problem):
    model = problem.settings.model
    P, K = (model.n - 1) * model.m, model.h
    assert problem.flops_per_word == 6 * (50 * (K + model.direct * P) + K * P)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(problem.params))


def script(name, *flags):
    command = [sys.executable, '-m', f'experiments.speed.{name}', *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_races_table_is_medians_and_the_ratio_of_the_first_contestant_to_each():
    def raced(name, rates):
        memory = {'start': 1_000_000, 'peak': 3_000_000}
        return {'contestant': name, 'precision': 'float32', 'words_per_second': rates, 'memory': memory}

    row = {'row': 'mlp9', 'flops_a_word': 10, 'raced': [raced('ours', [9, 20, 31]), raced('plain_jax', [9, 10, 10])]}
    measured = {'batch': 2, 'steps': 3, 'rounds': 3, 'load_before': 0.5, 'device': 'x', 'rows': [row]}
    lines = race.make_table({**measured, 'ceiling': {'float32': {'jax': 300.0, 'torch': 400.0}}}).splitlines()
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
    measured = {'axes': {'batch': points}, 'device': 'x', 'load_before': 0.0}
    (tmp_path / 'scaling.json').write_text(json.dumps(measured))
    lines = script('scaling', '--show', f'--output={tmp_path / "scaling.json"}').splitlines()
    cells = [[c.strip() for c in line.split('|')[1:-1]] for line in lines[2:4]]
    assert cells == [['1', '200,000 (5)', '500,000 (2)'], ['8', '20,000 (50)', '-']]
    drawing = (
        f'import pathlib; from experiments.speed import scaling; scaling.draw({measured!r}, pathlib.Path("figure.png"))'
    )
    environment = {**os.environ, 'PYTHONPATH': str(ROOT)}  # another process, since two scripts define the same flags
    subprocess.run([sys.executable, '-c', drawing], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / 'figure.png').stat().st_size


def test_sweeps_together_are_shown_by_their_medians(tmp_path):
    seconds = {'alone': [30.0, 60.0, 50.0], 'together': [20.0, 20.0, 25.0]}
    both = {mode: dict.fromkeys(('whole', 'updates'), values) for mode, values in seconds.items()}
    row = {
        'vocabulary': 1000,
        'h': 2,
        'batch': 3,
        'updates': 4000,
        'seconds': both,
        'largest_relative_difference': 2e-7,
    }
    measured = {'rows': [row], 'rounds': 3, 'device': 'x', 'load_before': 0.0}
    (tmp_path / 'vectorize.json').write_text(json.dumps(measured))
    line = script('vectorize', '--show', f'--output={tmp_path / "vectorize.json"}').splitlines()[2]
    cells = [c.strip() for c in line.split('|')[1:-1]]
    assert cells == ['1,000', '2', '3', '4,000', *['50, 20, 2.00'] * 2, '2e-07']


def test_two_checkouts_are_compared_by_the_medians_of_their_rounds(tmp_path):
    start = {'prepare': 1.0, 'compile': 0.5, 'cpu_seconds': 2.0}
    rates = {'base': [100, 200, 400], 'new': [110, 190, 440]}
    entry = {'row': 'mlp9', 'output': 'nce', 'words_per_second': rates, 'words_per_cpu_second': rates}
    entry['starts'] = {'base': [start], 'new': [{**start, 'compile': 0.25}]}
    about = {'batch': 8, 'steps': 5, 'rounds': 3, 'device': 'x', 'load_before': 0.0, 'load_after': 0.0}
    (tmp_path / 'commits.json').write_text(json.dumps({'raced': [entry], **about}))
    line = script('commits', '--show', f'--output={tmp_path / "commits.json"}').splitlines()[2]
    cells = [c.strip() for c in line.split('|')[1:-1]]
    assert cells == ['mlp9', 'nce', '200', '190', '1.100', '0.95-1.10', '1.100', '1.50', '1.25', '2.00', '2.00']


def entry_of_history(commit, rate=512, **changes):
    row = {'words_per_second': [rate, 3 * rate, 2 * rate], 'words_per_gflop': [1.0, 3.0, 2.0]}
    about = {'commit': commit, 'date': '2026-01-02', 'device': 'x', 'amx': True, 'versions': {'jax': '0.10.0'}}
    about |= {'load_before': 0.0, 'load_after': 1.5, 'rows': {'mlp9': {**row, 'seconds_to_first_update': 4.0}}}
    return {**about, **changes}


def test_a_commit_of_the_history_is_shown_by_the_medians_of_its_rounds(tmp_path):
    (tmp_path / 'history.json').write_text(json.dumps({'entries': [entry_of_history('0123456789')]}))
    line = script('history', f'--output={tmp_path / "history.json"}').splitlines()[2]
    cells = [c.strip() for c in line.split('|')[1:-1]]
    shown = ['0123456', '2026-01-02', 'mlp9', '1,024', '512-1,536', '500.0', '4.0', '2.0', '0.0-1.5']
    assert cells == [*shown, 'x, AMX, JAX 0.10.0']


def test_the_history_has_one_entry_a_commit_and_device_by_date():
    adding = (
        'import json, sys; from experiments.speed import history; print(json.dumps(history.add(*json.load(sys.stdin))))'
    )
    old = [entry_of_history('a'), entry_of_history('b', date='2026-01-03'), entry_of_history('a', device='y')]
    new = entry_of_history('a', rate=1000)
    command = [sys.executable, '-c', adding]  # another process, since several scripts define the same flags
    done = subprocess.run(command, input=json.dumps([old, new]), cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [old[2], new, old[1]]


@pytest.mark.slow
def test_a_measured_checkout_is_an_entry_of_the_history(tmp_path):
    script('history', '--add', '--rounds=1', '--updates=2', f'--output={tmp_path / "history.json"}')
    (entry,) = json.loads((tmp_path / 'history.json').read_text())['entries']
    assert entry['product_gflops'] > 0 and [*entry['rows']] == ['mlp1', 'mlp9', 'default']
    for row in entry['rows'].values():
        (rate,), (per_gflop,) = row['words_per_second'], row['words_per_gflop']
        assert rate > 0 and per_gflop > 0 and row['seconds_to_first_update'] > 0


@pytest.mark.slow
def test_a_checkout_raced_with_itself_trains_the_same(tmp_path):
    few = ('--rows=mlp9', '--precisions=float32', '--kinds=nce', '--batch=16', '--steps=2', '--rounds=1', '--starts=1')
    script('commits', f'--base={ROOT}', *few, '--seconds=0.01', f'--output={tmp_path / "commits.json"}')
    raced = json.loads((tmp_path / 'commits.json').read_text())['raced']
    assert [entry['largest_difference_of_losses'] for entry in raced] == [0, 0]


@pytest.mark.slow
def test_the_sweeps_that_are_compared_end_the_same(tmp_path):
    script('vectorize', '--sizes=large', '--rounds=1', f'--output={tmp_path / "vectorize.json"}')
    (row,) = json.loads((tmp_path / 'vectorize.json').read_text())['rows']
    assert row['vocabulary'] == 16_384 and row['largest_relative_difference'] < 1e-5


@pytest.mark.slow
def test_time_to_quality_is_when_the_target_is_first_reached(tmp_path):
    often = ('--config.train.evaluate_every=50', '--config.train.epochs=100')
    script('quality', '--config=configs/sentences.py', '--target=2', f'--output={tmp_path}', *often)
    measured = json.loads((tmp_path / 'quality_sentences.json').read_text())
    assert measured['reached'] <= 2 and measured['epoch'] < 100
    assert 0 < measured['seconds_to_target'] <= measured['seconds']
    script('quality', '--config=configs/sentences.py', '--target=1', f'--output={tmp_path}', *often)
    assert json.loads((tmp_path / 'quality_sentences.json').read_text())['seconds_to_target'] is None
    assert 'never' in script('quality', '--show', f'--output={tmp_path}')
