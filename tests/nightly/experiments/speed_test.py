"""The contestants of experiments/cost/speed do the same updates; what the scripts print is what is committed."""

import argparse
import json
import re
import subprocess
import sys

import jax
import numpy as np
import pytest
from helpers import ROOT, refuses

from configs import brown
from experiments import study
from experiments.cost.speed import (
    ceiling,
    commits,
    contestants,
    forms,
    history,
    quality,
    queries,
    race,
    scaling,
    vectorize,
)
from experiments.cost.speed import problem as problem_lib

TORCH = ('torch_eager', pytest.param('torch_compile', marks=pytest.mark.nightly))


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


@pytest.mark.parametrize(
    'backend,named,entered', [('gpu', (), True), ('cpu', (), False), ('cpu', ('ours_pallas',), True)]
)
def test_a_kernel_for_gpus_races_elsewhere_only_when_asked_for(monkeypatch, backend, named, entered):
    monkeypatch.setattr(jax, 'default_backend', lambda: backend)
    assert ('ours_pallas' in race.entered(named)) == entered


def test_the_products_of_an_update_are_counted(problem):
    model = problem.settings.model
    P, K = (model.n - 1) * model.m, model.h
    assert problem.flops_per_word == 6 * (50 * (K + model.direct * P) + K * P)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(problem.params))


def script(name, *flags):
    command = [sys.executable, '-m', f'experiments.cost.speed.{name}', *flags]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_races_table_is_medians_and_the_ratio_of_the_first_contestant_to_each():
    def raced(name, rates):
        memory = {'start': 1_000_000, 'peak': 3_000_000}
        return {'contestant': name, 'precision': 'float32', 'words_per_second': rates, 'memory': memory}

    row = {'row': 'mlp9', 'flops_a_word': 10, 'raced': [raced('ours', [9, 20, 31]), raced('plain_jax', [9, 10, 10])]}
    measured = {'batch': 2, 'steps': 3, 'rounds': 3, 'load_before': 0.5, 'device': 'x', 'rows': [row]}
    lines = race.make_table({**measured, 'ceiling': {'float32': {'jax': 300.0, 'torch': 400.0}}}).splitlines()
    assert [c.strip() for c in lines[3].split('|')[2:-1]] == 'plain_jax float32 10 9-10 2.00 25% 3 1'.split()


def start_study(module, *words):
    """Starts a study in this process, as `python -m` does in another one."""
    study.run(module.__doc__, define=module.define, measure=module.main, show=module.show, argv=words)


@pytest.fixture
def small_race(monkeypatch, tmp_path):
    """Returns the words of a race of a small network, without PyTorch; memory and ceiling are not measured."""
    config = brown.get_config('mlp1')
    config.model.m, config.model.h = 6, 7
    monkeypatch.setitem(problem_lib.ROWS, 'mlp1', (lambda: config, 50))
    monkeypatch.setattr(problem_lib, 'set_up', lambda: None)
    monkeypatch.setattr(race, 'peak_memory', lambda *_: {'start': 1_000_000, 'peak': 3_000_000})
    monkeypatch.setattr(ceiling, '_jax_product', lambda n, precision: lambda: None)
    monkeypatch.setitem(sys.modules, 'torch', None)
    return ['--rows=mlp1', '--batch=16', '--steps=2', '--rounds=1', f'--output={tmp_path / "race.json"}']


def test_without_pytorch_the_others_race_in_both_precisions(small_race, capsys):
    start_study(race, *small_race)
    printed, said = capsys.readouterr()
    raced = [[cell.strip() for cell in line.split('|')[2:4]] for line in printed.splitlines()[2:6]]
    assert raced == [[name, p] for p in ('float32', 'bfloat16') for name in ('ours', 'plain_jax')]
    (line,) = said.splitlines()
    assert all(word in line for word in ('torch_eager', 'torch_compile', 'pip install torch'))


def test_a_contestant_that_is_named_and_not_installed_ends_the_race_in_one_line(small_race, capsys):
    with pytest.raises(SystemExit, match='^1$'):
        start_study(race, *small_race, '--contestants=ours,torch_eager')
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert 'pip install torch' in line


@pytest.mark.parametrize('precisions', [['float32'], ['bfloat16'], ['float32', 'bfloat16']])
def test_a_ceiling_is_measured_of_the_precisions_that_race(small_race, monkeypatch, precisions, tmp_path):
    products = []
    monkeypatch.setattr(ceiling, '_jax_product', lambda n, precision: lambda: products.append(precision))
    start_study(race, *small_race, '--contestants=ours', f'--precisions={",".join(precisions)}')
    measured = json.loads((tmp_path / 'race.json').read_text())
    assert set(products) == {*precisions} == {*measured['ceiling']}


def test_a_race_without_memory_is_refused_before_anything_is_measured(small_race, monkeypatch):
    start_study(race, *small_race, '--contestants=ours', '--precisions=float32')
    monkeypatch.setattr(ceiling, 'flops_per_second', None)
    with pytest.raises(SystemExit, match='^2$'):
        start_study(race, *small_race, '--no-memory', '--contestants=ours', '--precisions=float32,bfloat16')


@pytest.mark.parametrize('flag', ['--no-memory', '--nomemory'])
def test_a_race_without_memory_keeps_what_an_earlier_race_measured(small_race, capsys, monkeypatch, flag):
    with pytest.raises(SystemExit, match='^2$'):
        start_study(race, *small_race, flag)
    assert capsys.readouterr().err.splitlines()[-1].startswith('--no-memory: ')
    start_study(race, *small_race, '--contestants=ours')
    monkeypatch.setattr(race, 'peak_memory', None)
    start_study(race, *small_race, '--contestants=ours', flag)
    assert len(re.findall(r'\| 3 +\| 1 +\|\n', capsys.readouterr().out)) == 4
    with pytest.raises(SystemExit, match='^2$'):
        start_study(race, *small_race, '--contestants=plain_jax', flag)
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith('--no-memory: ') and all(word in line for word in ('plain_jax', 'float32', 'mlp1'))


@pytest.mark.parametrize(
    'module,words,start',
    [
        (race, '--rows=mlp1,nosuch', "--rows='mlp1,nosuch': "),
        (race, '--rounds=0', "--rounds='0': "),
        (race, '--show --output=race.txt', "--output='race.txt': "),
        (forms, '--batch=100', '--batch=100: '),
        (forms, '--widths=50,x', "--widths='50,x': "),
        (commits, '', "--base='': "),
        (history, '--add --checkout=nosuch', "--checkout='nosuch': "),
        (quality, '--show --output=nosuch', 'nosuch: '),
    ],
)  # fmt: skip
def test_words_that_a_study_cannot_use_are_one_line(module, words, start, capsys):
    with pytest.raises(SystemExit, match='^2$'):
        start_study(module, *words.split())
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(start)


def test_a_checkout_without_git_is_one_line(tmp_path, capsys):
    (tmp_path / 'nplm_jax').mkdir()
    with pytest.raises(SystemExit, match='^2$'):
        start_study(history, '--add', f'--checkout={tmp_path}', f'--output={tmp_path / "history.json"}')
    assert capsys.readouterr().err.startswith(f"folder='{tmp_path}': ")


@pytest.mark.filterwarnings('ignore:the load_module:DeprecationWarning')  # ml_collections' own
def test_time_to_quality_takes_the_keys_of_a_config():
    config, values = quality.read_config('sentences', ['--config.train.epochs=7', '--config.model.h=3'])
    assert values == {'train.epochs': 7, 'model.h': 3} and (config.train.epochs, config.model.h) == (7, 3)
    for words, key in ((('nosuch', []), '--config'), (('sentences', ['--config.h=3']), '--config.h')):
        with refuses(key):
            quality.read_config(*words)


def test_a_size_without_plain_jax_is_shown_and_drawn(tmp_path, capsys):
    points = [
        {'batch': 1, 'words_per_second': {'ours, float32': [4.0, 5.0, 6.0], 'plain_jax, float32': [2.0]}},
        {'batch': 8, 'words_per_second': {'ours, float32': [50.0]}},
    ]
    measured = {'axes': {'batch': points}, 'device': 'x', 'load_before': 0.0}
    (tmp_path / 'scaling.json').write_text(json.dumps(measured))
    start_study(scaling, '--show', f'--output={tmp_path / "scaling.json"}')
    lines = capsys.readouterr().out.splitlines()
    cells = [[c.strip() for c in line.split('|')[1:-1]] for line in lines[2:4]]
    assert cells == [['1', '200,000 (5)', '500,000 (2)'], ['8', '20,000 (50)', '-']]
    scaling.draw(measured, tmp_path / 'figure.png')
    assert (tmp_path / 'figure.png').stat().st_size


def test_sweeps_together_are_shown_by_their_medians(tmp_path, capsys):
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
    start_study(vectorize, '--show', f'--output={tmp_path / "vectorize.json"}')
    line = capsys.readouterr().out.splitlines()[2]
    cells = [c.strip() for c in line.split('|')[1:-1]]
    assert cells == ['1,000', '2', '3', '4,000', *['50, 20, 2.00'] * 2, '2e-07']


def test_two_checkouts_are_compared_by_the_medians_of_their_rounds(tmp_path, capsys):
    start = {'prepare': 1.0, 'compile': 0.5, 'cpu_seconds': 2.0}
    rates = {'base': [100, 200, 400], 'new': [110, 190, 440]}
    entry = {'row': 'mlp9', 'output': 'nce', 'words_per_second': rates, 'words_per_cpu_second': rates}
    entry['starts'] = {'base': [start], 'new': [{**start, 'compile': 0.25}]}
    about = {'batch': 8, 'steps': 5, 'rounds': 3, 'device': 'x', 'load_before': 0.0, 'load_after': 0.0}
    (tmp_path / 'commits.json').write_text(json.dumps({'raced': [entry], **about}))
    start_study(commits, '--show', f'--output={tmp_path / "commits.json"}')
    line = capsys.readouterr().out.splitlines()[2]
    cells = [c.strip() for c in line.split('|')[1:-1]]
    assert cells == ['mlp9', 'nce', '200', '190', '1.100', '0.95-1.10', '1.100', '1.50', '1.25', '2.00', '2.00']


def entry_of_history(commit, rate=512, **changes):
    row = {'words_per_second': [rate, 3 * rate, 2 * rate], 'words_per_gflop': [1.0, 3.0, 2.0]}
    about = {'commit': commit, 'date': '2026-01-02', 'device': 'x', 'amx': True, 'versions': {'jax': '0.10.0'}}
    about |= {'load_before': 0.0, 'load_after': 1.5, 'rows': {'mlp9': {**row, 'seconds_to_first_update': 4.0}}}
    return {**about, **changes}


@pytest.mark.parametrize('words', [[], ['--show']])
def test_a_commit_of_the_history_is_shown_by_the_medians_of_its_rounds(tmp_path, capsys, words):
    (tmp_path / 'history.json').write_text(json.dumps({'entries': [entry_of_history('0123456789')]}))
    start_study(history, *words, f'--output={tmp_path / "history.json"}')
    line = capsys.readouterr().out.splitlines()[2]
    cells = [c.strip() for c in line.split('|')[1:-1]]
    shown = ['0123456', '2026-01-02', 'mlp9', '1,024', '512-1,536', '500.0', '4.0', '2.0', '0.0-1.5']
    assert cells == [*shown, 'x, AMX, JAX 0.10.0']


def test_the_history_has_one_entry_a_commit_and_device_by_date():
    old = [entry_of_history('a'), entry_of_history('b', date='2026-01-03'), entry_of_history('a', device='y')]
    new = entry_of_history('a', rate=1000)
    assert history.add(old, new) == [old[2], new, old[1]]


@pytest.mark.nightly
def test_a_measured_checkout_is_an_entry_of_the_history(tmp_path):
    script('history', '--add', '--rounds=1', '--updates=2', f'--output={tmp_path / "history.json"}')
    (entry,) = json.loads((tmp_path / 'history.json').read_text())['entries']
    assert entry['product_gflops'] > 0 and [*entry['rows']] == ['mlp1', 'mlp9', 'default']
    for row in entry['rows'].values():
        (rate,), (per_gflop,) = row['words_per_second'], row['words_per_gflop']
        assert rate > 0 and per_gflop > 0 and row['seconds_to_first_update'] > 0


@pytest.mark.nightly
def test_a_checkout_raced_with_itself_trains_the_same(tmp_path):
    few = ('--rows=mlp9', '--precisions=float32', '--kinds=nce', '--batch=16', '--steps=2', '--rounds=1', '--starts=1')
    script('commits', f'--base={ROOT}', *few, '--seconds=0.01', f'--output={tmp_path / "commits.json"}')
    raced = json.loads((tmp_path / 'commits.json').read_text())['raced']
    assert [entry['largest_difference_of_losses'] for entry in raced] == [0, 0]


@pytest.mark.nightly
def test_the_sweeps_that_are_compared_end_the_same(tmp_path):
    script('vectorize', '--sizes=large', '--rounds=1', f'--output={tmp_path / "vectorize.json"}')
    (row,) = json.loads((tmp_path / 'vectorize.json').read_text())['rows']
    assert row['vocabulary'] == 16_384 and row['largest_relative_difference'] < 1e-5


@pytest.mark.nightly
def test_time_to_quality_is_when_the_target_is_first_reached(tmp_path):
    often = ('--config.train.evaluate_every=50', '--config.train.epochs=100')
    script('quality', '--config=configs/sentences.py', '--target=2', f'--output={tmp_path}', *often)
    measured = json.loads((tmp_path / 'quality_sentences.json').read_text())
    assert measured['reached'] <= 2 and measured['epoch'] < 100
    assert 0 < measured['seconds_to_target'] <= measured['seconds']
    script('quality', '--config=configs/sentences.py', '--target=1', f'--output={tmp_path}', *often)
    assert json.loads((tmp_path / 'quality_sentences.json').read_text())['seconds_to_target'] is None
    assert 'never' in script('quality', '--show', f'--output={tmp_path}')


@pytest.mark.parametrize('missing', ['query', 'arpa', 'text'])
def test_queries_name_the_file_that_is_missing(tmp_path, missing):
    (tmp_path / 'file').touch()
    flags = dict.fromkeys(('query', 'arpa', 'text'), str(tmp_path / 'file')) | {missing: 'none'}
    with refuses(f'--{missing}'):
        next(queries.measure(argparse.Namespace(**flags, rounds=1)))
