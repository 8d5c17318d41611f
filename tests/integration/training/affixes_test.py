"""Tests training in which words with the same prefix or suffix share a part of their features."""

import jax
import numpy as np
import pytest
from helpers import (
    DATA,
    SPARSE,
    assert_close,
    check_eight_devices,
    check_resumed,
    check_together,
    others_nightly,
    small_settings,
    train,
)

from nplm_jax.data.stream import BOUNDARY_TOKENS, RARE
from nplm_jax.nn import Keys
from nplm_jax.outputs.output_layer import BIAS, EMBEDDING, View, view_rows
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import affixes
from nplm_jax.training.affixes import find_affixes
from nplm_jax.training.gradients import gradients
from nplm_jax.training.sparse_rows import scatter_to_dense

AFFIXES = {'train.affixes': True}
TIED = {
    **SPARSE, 'model.family': 'lstm', 'model.h': 3, 'model.m': 3, 'model.tied': True, 'model.direct': False,
    'output.kind': 'sampled', 'output.samples': 20, 'train.batch_size': 8, 'model.bptt_length': 4,
}  # fmt: skip
NCE = {**SPARSE, 'output.kind': 'nce'}
ROWWISE = {'optimizer.name': 'rowwise_adam', 'optimizer.decay': 0.3, 'optimizer.learning_rate': 0.01}
LOSSES = [{}, NCE, {**SPARSE, 'output.kind': 'tree'}, TIED]
AVERAGED = {**TIED, **ROWWISE, 'train.average': 0.5}


def test_affixes_are_prefixes_and_suffixes_that_words_share():
    words = [RARE, 'walking', 'talking', 'walk', 'a', 'la', *BOUNDARY_TOKENS]
    ids, num_affixes = find_affixes(words)
    assert num_affixes == ids.max() == len(np.unique(ids)) - 1
    found = [{i for i in row if i < num_affixes} for row in ids]
    assert found[0] == set() and all(not of_token for of_token in found[6:])
    assert len(found[1]) == 6  # g$ ng$ ing$ ^wa ^wal ^walk
    assert len(found[1] & found[2]) == 3  # g$ ng$ ing$
    assert len(found[1] & found[3]) == 3  # ^wa ^wal ^walk
    assert found[3] < found[1]  # no other word shares the suffixes of walk
    assert found[4] == found[5] and len(found[4]) == 1  # a$


def test_a_vocabulary_without_shared_affixes_trains_plainly():
    ids, num_affixes = find_affixes([RARE, 'ab', 'xyz'])
    assert ids.shape == (3, 0) and num_affixes == 0


def nll_of(network, params, batch, key):
    """Computes the loss from the written-out features of all words, which JAX differentiates on its own."""
    key, key_rows = jax.random.split(key)
    rows, folded = network.output.rows(batch, key_rows), affixes.fold(params, batch.affixes_VxK)
    view = View(folded) if rows is None else view_rows(folded, network.tables.words, rows)
    ids_SxL = batch.recent(network.body.layout.lookback).ids_SxL
    view, state = view._replace(contexts_SxLxM=folded[EMBEDDING][ids_SxL]), network.start(len(ids_SxL))
    return network.loss(view, batch, state, Keys.of_streams(key, batch.streams_S))[0]


@pytest.mark.parametrize('changes', others_nightly(LOSSES, ({}, TIED)))
def test_gradients_are_those_of_written_out_features(changes):
    run = prepare_run(small_settings({**changes, **AFFIXES}), DATA)
    state, network = run.init_state(), run.program.network
    random = np.random.default_rng(0)
    params = jax.tree.map(lambda x: x + 0.3 * random.normal(size=x.shape).astype(np.float32), state.params)
    _, _, positions_T, _, _, inputs = run.chunk(state, 0)
    positions_SxT = positions_T[: run.program.batch_size].reshape(-1, network.layout.bptt_length)
    batch, key = inputs.batch(network, positions_SxT), jax.random.key(3)
    tables = network.tables.of_words if network.output.takes_new_words else (EMBEDDING,)  # a tree's rows are nodes
    shared = {affixes.name_of(name) for name in tables if name != BIAS}
    assert shared == {name for name in params if name.startswith('affixes_')}
    found = gradients(params, network, batch, network.start(len(positions_SxT)), key)
    expected = jax.grad(lambda params: nll_of(network, params, batch, key))(params)
    dense = found.view.shared
    if found.view.rows is not None:
        dense = scatter_to_dense(found.view, batch, params, network, run.program.sharding)
    assert_close(dense, expected, rtol=1e-4, atol=2e-6)
    assert all(np.abs(expected[name]).max() > 1e-4 for name in shared)


@pytest.mark.parametrize(
    'changes', others_nightly([*LOSSES, {**NCE, **ROWWISE}, {**TIED, **ROWWISE}, AVERAGED], ({}, AVERAGED))
)
def test_training_resumes_and_ends_with_the_sums_alone(changes, tmp_path):
    best = check_resumed(small_settings({**changes, **AFFIXES}), tmp_path)
    plain, _, _ = train(small_settings(changes), tmp_path / 'plain')
    assert best.keys() == plain.keys() and not np.array_equal(best[EMBEDDING], plain[EMBEDDING])


def test_runs_train_together():
    check_together([small_settings({**TIED, **ROWWISE, **AFFIXES, 'seed': seed}) for seed in (1, 2)])


@pytest.mark.eight_devices
@pytest.mark.parametrize(
    'changes',
    [{'train.batch_size': 16}, {'train.batch_size': 32, **NCE, **ROWWISE}, {**TIED, **ROWWISE, 'train.batch_size': 32}],
)
def test_on_eight_devices_they_train_as_on_one(changes):
    check_eight_devices({**changes, **AFFIXES}, 2, 4, 'shard_map')
