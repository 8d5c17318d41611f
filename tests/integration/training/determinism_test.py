"""Tests that equal seeds give bitwise equal results in separate processes, on one and on eight devices."""

import contextlib
import json

import jax
import numpy as np
import pytest
from helpers import launch_process, usual_environment

from nplm_jax.config import settings as config_lib
from nplm_jax.runs import experiment, loading
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training.checkpoints import CheckpointStore
from nplm_jax.training.train import restore_or_init

OVER_EIGHT = ('--config.parallel.data=4', '--config.parallel.model=2')


def final_bits(folder):
    """Returns the result of a run: the bytes of every array, the perplexities and the number of updates."""
    settings = experiment.load(folder).settings
    settings = config_lib.replace(settings, {'parallel.data': 1, 'parallel.model': 1})
    run = prepare_run(settings, loading.prepare_recorded(settings, folder))
    with contextlib.closing(CheckpointStore(folder / 'checkpoints', read_only=True)) as store:
        state, best, progress = restore_or_init(run, store)
    results = json.loads((folder / 'results.json').read_text())
    assert progress.step == results['updates']
    return [np.asarray(x).tobytes() for x in jax.tree.leaves((state, best))], results['perplexity'], progress.step


@pytest.mark.nightly
@pytest.mark.parametrize('devices,flags', [(1, ()), (8, OVER_EIGHT)])
def test_the_same_seed_gives_the_same_bits_in_another_process(tmp_path, devices, flags):
    env = {**usual_environment(), 'JAX_PLATFORMS': 'cpu', 'JAX_NUM_CPU_DEVICES': str(devices)}
    env['JAX_ENABLE_COMPILATION_CACHE'] = 'false'  # each process compiles separately
    changes = ('--config.train.epochs=40', '--config.model.dropout=0.2')
    for name in ('one', 'two'):
        process = launch_process(
            '--config=configs/sentences.py:adam', f'--workdir={tmp_path / name}', *changes, *flags, env=env
        )
        assert process.returncode == 0, process.stderr
    one, two = final_bits(tmp_path / 'one'), final_bits(tmp_path / 'two')
    assert one == two and one[2] == 120
