"""Tests that the contestants of experiments/cost/speed make equal updates, and that scripts print the results."""

import argparse
import json
import re
import sys

import jax
import numpy as np
import pytest
from helpers import refuses

from configs import brown
from experiments import study
from experiments.cost.speed import ceiling, contestants, queries, race
from experiments.cost.speed import problem as problem_lib
from nplm_jax.config import settings
from nplm_jax.utils.errors import NonFiniteError

TORCH = ('torch_eager', pytest.param('torch_compile', marks=pytest.mark.nightly))


WINDOWS = ('mlp1', 'mlp3', 'mlp9')  # direct and hidden, only direct, only hidden
STREAMS = {  # row -> small sizes
    'lstm': {'model.m': 6, 'model.h': 7},
    'mogrifier': {'model.m': 6, 'model.h': 6, 'optimizer.learning_rate': 0.3},
    'transformer': {'model.m': 6, 'model.h': 8, 'model.memory': 20, 'optimizer.learning_rate': 0.3},
}


@pytest.fixture(params=[*WINDOWS, *STREAMS])
def problem(request):
    if request.param in STREAMS:
        make_config, _ = problem_lib.ROWS[request.param]
        config = settings.override(make_config(), STREAMS[request.param])
    else:
        config = brown.get_config(request.param)
        config.model.m, config.model.h = 6, min(config.model.h, 7)
        config.optimizer.learning_rate, config.optimizer.decay = 30.0, 1e-2
    config.output.block_size = 6
    return problem_lib.make_problem(problem_lib.without_dropout(config), V=50, B=32, S=5, turns=3)


def run(name, problem, precision='float32'):
    if name.startswith('torch'):
        pytest.importorskip('torch')
    turn = contestants.find(name)(problem, precision)
    return np.concatenate([turn(), turn()])


@pytest.mark.filterwarnings('ignore:.torch.jit.script_method. is deprecated:DeprecationWarning')  # torch's own
@pytest.mark.filterwarnings('ignore:The .grad attribute:UserWarning')  # torch.compile's own
@pytest.mark.parametrize('name', ['plain_jax', *TORCH])
def test_every_contestant_does_our_updates(problem, name):
    expected = run('ours', problem)
    first, second = np.split(expected, 2)  # the same words
    assert np.mean(second) < np.mean(first) - 0.015
    np.testing.assert_allclose(run(name, problem), expected, atol=2e-5)
    np.testing.assert_allclose(run(name, problem, 'bfloat16'), expected, atol=1e-2)


@pytest.mark.parametrize('problem', STREAMS, indirect=True)
def test_streams_are_read_in_order_from_turn_to_turn(problem):
    places_UxSxT = problem.positions_SxB.reshape(5, 2, 16)
    in_reading_order = places_UxSxT.swapaxes(0, 1).reshape(2, -1)
    assert np.all(np.diff(in_reading_order) % problem.positions_SxB.size == 1)


@pytest.mark.parametrize('problem', ['lstm'], indirect=True)
def test_the_products_of_an_lstm_are_counted(problem):
    assert problem.flops_per_word == 6 * (50 * 7 + 4 * 7 * (6 + 7))


@pytest.mark.parametrize('problem', WINDOWS, indirect=True)
def test_the_products_of_an_update_are_counted(problem):
    model = problem.settings.model
    P, K = (model.n - 1) * model.m, model.h
    assert problem.flops_per_word == 6 * (50 * (K + model.direct * P) + K * P)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(problem.params))


def test_the_races_table_is_medians_and_the_ratio_of_the_first_contestant_to_each():
    def raced(name, rates):
        memory = {'start': 1_000_000, 'peak': 3_000_000}
        return {'contestant': name, 'precision': 'float32', 'words_per_second': rates, 'memory': memory}

    row = {'row': 'mlp9', 'flops_a_word': 10, 'raced': [raced('ours', [9, 20, 31]), raced('plain_jax', [9, 10, 10])]}
    measured = {'batch': 2, 'steps': 3, 'rounds': 3, 'load_before': 0.5, 'device': 'x', 'rows': [row]}
    lines = race.make_table({**measured, 'ceiling': {'float32': {'jax': 300.0, 'torch': 400.0}}}).splitlines()
    assert [c.strip() for c in lines[3].split('|')[2:-1]] == 'plain_jax float32 10 9-10 2.00 25% 3 1'.split()


def start_study(module, *words):
    """Starts a study within this process, like `python -m` in a separate process."""
    study.run(module.__doc__, define=module.define, measure=module.main, show=module.show, argv=words)


@pytest.fixture
def small_race(monkeypatch, tmp_path):
    """Returns the arguments for a race of a small network without PyTorch; memory and ceiling are not measured."""
    config = brown.get_config('mlp1')
    config.model.m, config.model.h = 6, 7
    monkeypatch.setitem(problem_lib.ROWS, 'mlp1', (lambda: config, 50))
    monkeypatch.setattr(problem_lib, 'set_up', lambda: None)
    monkeypatch.setattr(race, 'peak_memory', lambda *_: {'start': 1_000_000, 'peak': 3_000_000})
    monkeypatch.setattr(ceiling, '_jax_product', lambda n, precision: lambda: None)
    monkeypatch.setitem(sys.modules, 'torch', None)
    sizes = ['--rows=mlp1', '--batch=16', '--steps=2', '--rounds=1', '--precisions=float32,bfloat16']
    return [*sizes, f'--output={tmp_path / "race.json"}']


def test_a_race_is_in_the_precision_of_the_machine_unless_others_are_asked_for(small_race, monkeypatch, tmp_path):
    monkeypatch.setattr(race, 'native_precision', lambda: 'bfloat16')
    words = [word for word in small_race if not word.startswith('--precisions')]
    start_study(race, *words, '--contestants=ours')
    (row,) = json.loads((tmp_path / 'race.json').read_text())['rows']
    assert [raced['precision'] for raced in row['raced']] == ['bfloat16']


def test_a_contestant_with_other_losses_is_named():
    turns = {
        (name, 'float32'): lambda nll=nll: np.array([nll]) for name, nll in (('a', 9.0), ('b', 9.0005), ('c', 9.1))
    }
    problem_lib.check_losses({entry: turns[entry] for entry in list(turns)[:2]})
    with pytest.raises(NonFiniteError, match='^c '):
        problem_lib.check_losses(turns)


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
        (race, '--rows=mlp1,lstm --batch=100', 'train.batch_size=100: '),
        (race, '--rounds=0', "--rounds='0': "),
        (race, '--show --output=race.txt', "--output='race.txt': "),
    ],
)  # fmt: skip
def test_words_that_a_study_cannot_use_are_one_line(module, words, start, capsys):
    with pytest.raises(SystemExit, match='^2$'):
        start_study(module, *words.split())
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(start)


@pytest.mark.parametrize('missing', ['query', 'arpa', 'text'])
def test_queries_name_the_file_that_is_missing(tmp_path, missing):
    (tmp_path / 'file').touch()
    flags = dict.fromkeys(('query', 'arpa', 'text'), str(tmp_path / 'file')) | {missing: 'none'}
    with refuses(f'--{missing}'):
        next(queries.measure(argparse.Namespace(**flags, rounds=1, also=[], quick=False)))


def test_the_lines_of_queries_end_where_kenlm_ends_them():
    assert queries.lines_of('a\u2028b\x0cc\u0085\n\nd\r\n'.encode()) == ['a\u2028b\x0cc\u0085', '', 'd\r']
