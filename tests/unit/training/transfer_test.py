"""Tests that training transfers only the position of a chunk to or from the devices between lines of metrics."""

import jax
import pytest
from helpers import DATA, SPARSE, RecordingReporter, small_settings

from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training.step import execute_steps
from nplm_jax.training.train import train
from nplm_jax.training.training_run import ChunkResult

RARELY = {'train.epochs': 9, 'train.log_every': 8, 'train.evaluate_every': 10**6, 'train.checkpoint_every': 10**6}
LSTM = {'model.family': 'lstm', 'model.direct': False, 'train.batch_size': 8, 'model.bptt_length': 4}


@pytest.mark.parametrize(
    'changes',
    [
        {'optimizer.name': 'adam', 'optimizer.clip_norm': 1.0},
        {**SPARSE, 'output.kind': 'sampled', 'train.average': 0.9},
        {**LSTM, 'optimizer.schedule': 'cosine'},
        pytest.param({'parallel.data': 4, 'parallel.model': 2, 'train.batch_size': 8}, marks=pytest.mark.eight_devices),
    ],
    ids=['window', 'sampled', 'lstm', 'mesh'],
)
def test_chunks_transfer_nothing_that_is_not_asked_for(changes):
    run = prepare_run(small_settings({**RARELY, **changes}), DATA)
    reporter = RecordingReporter()
    training = train(run, None, reporter)
    chunk = next(training)
    chunk = training.send(ChunkResult(*execute_steps(*chunk)))  # compiles, and computes the order of the first epoch
    with jax.transfer_guard('disallow'):
        for _ in range(4):
            chunk = training.send(ChunkResult(*execute_steps(*chunk)))
    assert chunk.state.step == 20 and len(reporter.nll) == 16  # the losses of the last chunk stay on the device
