"""Runs the benchmarks with --quick, which compares the contestants' values without timing them."""

import pytest
from helpers import ROOT
from studies import start

BENCHMARKS = {  # module -> the file of its results
    'cost.speed.race': 'speed/results/race.json',
    'cost.speed.evaluation': 'speed/results/evaluation.json',
    'cost.speed.blocks': 'speed/results/blocks.json',
    'cost.speed.queries': 'speed/results/queries.json',
    'cost.scale.training': 'scale/results/training.json',
    'cost.scale.preparation': 'scale/results/preparation.json',
    'cost.scale.ngrams': 'scale/results/ngrams.json',
    'cost.accelerator.race': '',
}


@pytest.mark.filterwarnings('ignore::UserWarning')  # generated texts are short and have many rare words
@pytest.mark.parametrize('module', BENCHMARKS)
def test_a_benchmark_runs_in_small_and_leaves_the_results_of_the_study(module, tmp_path, monkeypatch, capfd):
    committed = ROOT / 'experiments' / 'cost' / BENCHMARKS[module]
    before = committed.read_bytes() if committed.is_file() else b''
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('PYTHONPATH', str(ROOT))
    code = start(f'experiments.{module}', ['--quick'])
    assert code == 0, capfd.readouterr().err
    assert (committed.read_bytes() if committed.is_file() else b'') == before
    assert not BENCHMARKS[module] or (tmp_path / 'runs' / 'quick' / committed.name).is_file()
