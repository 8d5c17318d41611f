"""Same seed, same bits: whole runs as processes of their own, on one device and over eight simulated ones."""

import json
import os

import jax
import numpy as np
import pytest
from helpers import launch

from nplm_jax.runs import experiment
from nplm_jax.training import checkpoints, loop

OVER_EIGHT = ('--config.parallel.data=4', '--config.parallel.model=2')


def left(folder):
    """All that a run ends with: every array's bytes, and its perplexities."""
    settings, vocabulary, _ = experiment.load(folder)
    store = checkpoints.CheckpointStore(folder / 'checkpoints', read_only=True)
    state = loop.init_state(settings, len(vocabulary), None, 1)
    arrays = store.restore(state, state.params)[:2]
    store.close()
    results = json.loads((folder / 'results.json').read_text())
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(arrays)], results['perplexity'], results['updates']


@pytest.mark.parametrize('devices,flags', [(1, ()), (8, OVER_EIGHT)])
def test_the_same_seed_gives_the_same_bits_in_another_process(tmp_path, devices, flags):
    env = {**os.environ, 'JAX_PLATFORMS': 'cpu', 'JAX_NUM_CPU_DEVICES': str(devices)}
    env['JAX_ENABLE_COMPILATION_CACHE'] = 'false'  # each process compiles for itself
    how = ('--config.train.epochs=40', '--config.model.dropout=0.2', '--config.optimizer.momentum=0.9')
    for name in ('one', 'two'):
        done = launch('--config=configs/sentences.py', f'--workdir={tmp_path / name}', *how, *flags, env=env)
        assert done.returncode == 0, done.stderr
    one, two = left(tmp_path / 'one'), left(tmp_path / 'two')
    assert one == two and one[2] == 120
