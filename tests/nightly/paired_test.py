"""Tests the tool that compares the speed of two checkouts."""

import json

import pytest
from helpers import ROOT

from experiments import study
from tools.paired import race


def run(folder, *words):
    words = *words, f'--output={folder / "race.json"}'
    study.run(race.__doc__, define=race.define, measure=race.main, show=race.show, argv=words)


@pytest.mark.parametrize('base', ['', 'nosuch', '.'])
def test_a_folder_without_a_checkout_is_one_line(base, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match='^2$'):
        run(tmp_path, f'--base={base}')
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith('--base=')


def test_a_checkout_without_git_is_one_line(tmp_path, capsys):
    (tmp_path / 'nplm_jax').mkdir()
    with pytest.raises(SystemExit, match='^2$'):
        run(tmp_path, f'--base={tmp_path}')
    assert capsys.readouterr().err.startswith(f"folder='{tmp_path}': ")


def test_two_checkouts_are_compared_by_the_medians_of_their_rounds(tmp_path, capsys):
    start = {'prepare': 1.0, 'compile': 0.5, 'cpu_seconds': 2.0}
    rates = {'base': [100, 200, 400], 'new': [110, 190, 440]}
    entry = {'row': 'mlp9', 'output': 'nce', 'words_per_second': rates, 'words_per_cpu_second': rates}
    entry['starts'] = {'base': [start], 'new': [{**start, 'compile': 0.25}]}
    about = {'batch': 8, 'steps': 5, 'rounds': 3, 'device': 'x', 'load_before': 0.0, 'load_after': 0.0}
    (tmp_path / 'race.json').write_text(json.dumps({'raced': [entry], **about}))
    run(tmp_path, '--show')
    line = capsys.readouterr().out.splitlines()[2]
    cells = [c.strip() for c in line.split('|')[1:-1]]
    assert cells == ['mlp9', 'nce', '200', '190', '1.100', '0.95-1.10', '1.100', '1.50', '1.25', '2.00', '2.00']


def test_a_checkout_raced_with_itself_trains_the_same(tmp_path):
    few = ('--rows=mlp9', '--precisions=float32', '--kinds=nce', '--batch=16', '--steps=2', '--rounds=1', '--starts=1')
    run(tmp_path, f'--base={ROOT}', *few, '--seconds=0.01')
    raced = json.loads((tmp_path / 'race.json').read_text())['raced']
    assert [entry['largest_difference_of_losses'] for entry in raced] == [0, 0]


def test_a_checkout_whose_losses_are_not_numbers_trains_another_thing():
    class Checkout:
        def __init__(self, loss):
            self.loss = loss

        def ask(self, **command):
            return {'nll': [self.loss], 'steady': 1.0, 'batch_size': 8}

    flags = study.Flags(starts=1, rounds=1, steps=2, seconds=1.0)
    with pytest.raises(SystemExit, match='^mlp9: the losses differ by up to nan$'):
        race.race(flags, {'base': Checkout(9.5), 'new': Checkout(float('nan'))}, 'mlp9', {})
