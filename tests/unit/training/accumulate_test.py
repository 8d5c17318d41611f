"""Tests that a batch computed in parts (gradient accumulation) gives the same update."""

import jax
import numpy as np
import pytest
from helpers import DATA, SPARSE, check_eight_devices, refuses, run_chunk, small_settings

from nplm_jax.runs.training_from_settings import prepare_run

COMMON = {'train.batch_size': 16, 'model.bptt_length': 4, 'optimizer.clip_norm': 1.0}
DROPOUT = {'model.dropout': 0.3}
LSTM = {
    'model.family': 'lstm',
    'model.direct': False,
    'model.activation_penalty': 0.5,
    'model.slowness_penalty': 0.5,
}
MASKS = {**DROPOUT, 'model.output_dropout': 0.4, 'model.word_dropout': 0.2}
STREAMS = {**LSTM, **MASKS, 'model.layers': 2, 'model.weight_dropout': 0.3}
RESIDUAL = {'model.family': 'residual', 'model.direct': False, **MASKS}
ROWWISE = {'optimizer.name': 'rowwise_adam', 'optimizer.learning_rate': 0.01}


@pytest.mark.nightly
@pytest.mark.parametrize(
    'body,recipe',
    [
        (DROPOUT, {}),
        (DROPOUT, {**SPARSE, **ROWWISE, 'output.kind': 'nce'}),
        (STREAMS, {**SPARSE, 'output.kind': 'two_level'}),
        ({**STREAMS, 'model.variational': True}, {}),
        (RESIDUAL, {**SPARSE, **ROWWISE, 'output.kind': 'nce'}),
    ],
    ids=['nplm-full', 'nplm-nce', 'lstm-two_level', 'variational_lstm-full', 'residual-nce'],
)
def test_an_update_in_parts_is_that_of_the_whole_batch(body, recipe):
    ends = []
    for parts in (1, 4):
        run = prepare_run(small_settings({**COMMON, **body, **recipe, 'train.accumulate': parts}), DATA)
        state, nll_S = run_chunk(run.chunk(run.init_state(), 0))
        ends.append((state.params, state.carry, nll_S))
    differences = [np.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, ends), strict=True)]
    assert max(differences) < 2e-6


def test_parts_are_of_one_size():
    with refuses('train.accumulate'):
        prepare_run(small_settings({**COMMON, **LSTM, 'train.accumulate': 3}), DATA)


@pytest.mark.eight_devices
@pytest.mark.parametrize('kind,data,model', [('full', 2, 4), ('nce', 4, 2)])
def test_parts_on_eight_devices_are_those_of_one(kind, data, model):
    changes = {**SPARSE, 'output.kind': kind, 'train.accumulate': 2, 'train.batch_size': 16, 'model.dropout': 0.3}
    check_eight_devices(changes, data, model, 'shard_map')
