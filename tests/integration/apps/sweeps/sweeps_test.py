import json
import signal
import subprocess
import time

import pytest
from helpers import ROOT, command, launch
from sweep_studies import SWEEP

from configs import sentences
from nplm_jax.apps.sweeps import sweep_points, sweeps


@pytest.fixture
def study(tmp_path):
    (tmp_path / 'study.py').write_text(SWEEP)
    return tmp_path / 'study.py'


def test_a_killed_sweep_finishes_only_what_was_missing(study, tmp_path):
    runs = tmp_path / 'runs'
    flags = [f'--config={study}:row', '--sweep', f'--workdir={runs}']
    process = subprocess.Popen(command(*flags), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    first = runs / 'h_3__seed_2' / 'results.json'
    while process.poll() is None and not first.exists():
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    before = first.stat().st_mtime_ns
    done = launch(*flags)
    assert done.returncode == 0, done.stderr
    assert first.stat().st_mtime_ns == before
    assert 'h_3__seed_2 ' in done.stdout
    table = (runs / 'table.md').read_text()
    assert done.stdout.partition(table)[2].startswith(f'Best on validation: {runs}/h_')
    assert done.stdout.endswith(f'Figure: {runs}/table.png\n') and (runs / 'table.png').exists()
    for h in (3, 5, 7):
        results = json.loads((runs / f'h_{h}__seed_2' / 'results.json').read_text())
        assert results['parameters'] == 10 * (1 + 2 + h) + h * (1 + 2 * 2) and results['seed'] == 2
        assert f'| h_{h}__seed_2 | {results["perplexity"]["train"]:.1f}' in table


def test_a_grid_on_the_command_line_is_trained_and_its_best_point_marked(tmp_path):
    flags = ['--config=configs/sentences.py', '--config.train.epochs=3', '--vectorize']
    done = launch(*flags, f'--workdir={tmp_path}/runs', '--grid', 'optimizer.learning_rate=1e-9,0.5', 'model.m=2,3')
    assert done.returncode == 0, done.stderr
    table, figure = done.stdout.rpartition('| point')[2].splitlines(), done.stdout.splitlines()[-1]
    marked = [line.split('|')[1].strip() for line in table if line.endswith('| best on validation |')]
    results = {p.parent.name: json.loads(p.read_text()) for p in tmp_path.glob('runs/*/results.json')}
    assert len(results) == 4 and all(results[name]['trained_together'] == 2 for name in results)
    assert marked == [min(results, key=lambda name: results[name]['perplexity']['valid'])]
    assert 'learning_rate_0.5' in marked[0] and f'Best on validation: {tmp_path}/runs/{marked[0]}' in done.stdout
    assert figure == f'Figure: {tmp_path}/runs/table.png'


def test_a_point_that_fails_does_not_stop_the_others(tmp_path, lines):
    changes = [
        {'train.batch_size': 14},
        {'model.m': 10**9},
        *({'optimizer.learning_rate': rate, 'train.epochs': 2} for rate in (1e30, 0.5)),
    ]
    points = [sweep_points.apply(sentences.get_config(), change) for change in changes]
    table = sweeps.run(points, tmp_path, 'x').splitlines()
    assert ['refused' in row for row in table[2:6]] == [True, True, False, False]
    assert ['diverged' in row for row in table[2:6]] == [False, False, True, False]
    said = '\n'.join(lines()[1])
    assert 'batch_size_14: train.batch_size=14: ' in said and 'm_1000000000: ' in said
    assert 'learning_rate_1e30__epochs_2: ' in said and ' optimizer.learning_rate' in said
