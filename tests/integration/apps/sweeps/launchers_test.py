import json
import re

import pytest
from helpers import launch

pytest.importorskip('submitit')

SWEEP = """
from configs import sentences

def get_config():
    return sentences.get_config()

def sweep():
    yield {'seed': 2, 'train.epochs': 20}
    yield {'train.batch_size': 14}
"""


def test_a_sweep_as_jobs_of_this_machine(tmp_path):
    (tmp_path / 'study.py').write_text(SWEEP)
    runs = tmp_path / 'runs'
    flags = (f'--config={tmp_path / "study.py"}', '--sweep', '--launcher=local', '--jobs=2', f'--workdir={runs}')
    done = launch(*flags, '--config.model.h=3', '--config.seed=5')
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith((runs / 'table.md').read_text()) and '| batch_size_14     | failed |' in done.stdout
    assert re.search(r'^batch_size_14: .*train\.batch_size=14: ', done.stderr, re.MULTILINE)
    results = json.loads((runs / 'seed_2__epochs_20' / 'results.json').read_text())
    assert (results['seed'], results['updates'], results['parameters']) == (2, 60, 10 * (1 + 2 + 3) + 3 * (1 + 2 * 2))
    assert (
        results['command'].endswith(f' --workdir={runs}/seed_2__epochs_20') and '--launcher' not in results['command']
    )
