"""Tests updates that read words from a memory-mapped file."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DATA, SPARSE, assert_close, check_resumed, check_together, refuses, run_chunk, small_settings

from nplm_jax.data.batches import examples, make_batch
from nplm_jax.distributed.sharding import ONE_DEVICE, MeshSharding, make_mesh
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import vmapped
from nplm_jax.training.word_source import make_word_source

MAPPED = {'train.input': 'mapped'}
LSTM = {'model.family': 'lstm', 'model.direct': False, 'train.batch_size': 8, 'model.bptt_length': 4}


def batches(run, steps):
    """Returns the contexts and targets of all updates in some chunks."""
    out = []
    for step in steps:
        chunk = run.chunk(run.init_state(), step)
        size, body = chunk.num_steps * run.program.batch_size, run.program.network.body
        positions_SxT = chunk.positions_T[chunk.first : chunk.first + size].reshape(-1, body.layout.bptt_length)
        out.append(make_batch(chunk.inputs.tokens_T, positions_SxT, body.layout.lookback)[:2])
    return [np.concatenate(arrays) for arrays in zip(*out)]


def test_streams_are_the_same_from_a_file():
    run, mapped = (prepare_run(small_settings({**LSTM, **changes}), DATA) for changes in ({}, MAPPED))
    size = run.schedule.steps_per_execution
    for a, b in zip(batches(run, [0, size]), batches(mapped, [0, size])):
        np.testing.assert_array_equal(a, b)
    states = [run_chunk(r.chunk(r.init_state(), 0))[0] for r in (run, mapped)]
    assert_close(*states, rtol=1e-5, atol=1e-7)


def test_an_epoch_of_windows_has_every_word_once():
    run = prepare_run(settings := small_settings(MAPPED), DATA)
    epoch, B = run.schedule.steps_per_epoch, run.program.batch_size
    body, indices = run.program.network.body, np.arange(epoch * B)
    positions, others = (body.layout.positions_at(settings.seed, e, DATA.train, B, indices) for e in (0, 1))
    assert len(set(positions.tolist())) == epoch * B and set(positions) <= set(range(220))
    steps = range(0, epoch, run.schedule.steps_per_execution)
    contexts, targets = batches(run, steps)
    expected = examples(DATA.tokens_T, positions.astype(np.int32), contexts.shape[1])
    np.testing.assert_array_equal(contexts, expected[0])
    np.testing.assert_array_equal(targets[:, 0], expected[1])
    assert (others != positions).any()


@pytest.mark.nightly
@pytest.mark.parametrize('changes', [{}, LSTM, {**SPARSE, 'output.kind': 'nce'}], ids=['nplm', 'lstm', 'nce'])
def test_stopped_and_resumed_is_bit_for_bit_the_same(changes, tmp_path):
    check_resumed(small_settings({**changes, **MAPPED}), tmp_path)


def test_runs_with_different_seeds_train_together_as_alone():
    check_together([small_settings({**MAPPED, 'seed': seed}) for seed in (1, 2, 3)])


def test_joined_words_are_shared_or_kept_apart():
    tokens = [jnp.asarray(DATA.tokens_T), jnp.asarray(DATA.tokens_T)]
    joined, starts = vmapped._join_words([tokens[0]] * 3, 3)
    assert starts == [0, 0, 0] and len(joined) == len(DATA.tokens_T)
    joined, starts = vmapped._join_words(tokens, 3)
    alone = examples(DATA.tokens_T, np.arange(7, dtype=np.int32), 3)
    for start in starts:
        together = examples(joined, np.arange(start, start + 7, dtype=np.int32), 3)
        jax.tree.map(np.testing.assert_array_equal, together, alone)
    runs = [prepare_run(small_settings({'seed': seed}), DATA) for seed in (1, 2)]
    first, second = (run.chunk(run.init_state(), 0).inputs.tokens_T for run in runs)
    assert first is second


def test_a_mesh_reads_the_words_of_one_device_from_a_file():
    run = prepare_run(settings := small_settings(MAPPED), DATA)
    shardings = run.program.sharding, MeshSharding(make_mesh(1, 1))
    sources = [
        make_word_source(settings.train, settings.seed, DATA, run.program.network, sharding) for sharding in shardings
    ]
    one, mesh = (source(0, 3, 10) for source in sources)
    jax.tree.map(np.testing.assert_array_equal, mesh, one)


def test_a_text_of_so_many_words_is_not_put_on_a_device():
    class Long:
        def __len__(self):
            return 2**31

    run = prepare_run(settings := small_settings({'train.input': 'device'}), DATA)
    with refuses('train.input'):
        data = dataclasses.replace(DATA, tokens_T=Long())
        make_word_source(settings.train, settings.seed, data, run.program.network, ONE_DEVICE)


def test_a_mapped_corpus_is_read_from_its_file(tmp_path):
    np.asarray(DATA.tokens_T).tofile(tmp_path / 'tokens')
    data = dataclasses.replace(DATA, tokens_T=np.memmap(tmp_path / 'tokens', np.int32, 'r'))
    automatic, device = (prepare_run(small_settings({'train.input': kind}), data) for kind in ('auto', 'device'))
    chunk = automatic.chunk(automatic.init_state(), 0)
    assert chunk.inputs.tokens_T.size == chunk.num_steps * 7 * 4  # windows of the 3 words before a word
    assert device.chunk(device.init_state(), 0).inputs.tokens_T.size == len(DATA.tokens_T)
