"""The penalty that draws the features of each word to those of related words."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DATA, SPARSE, check_eight_devices, check_resumed, check_together, same_bits, small_settings, train

from nplm_jax.config import replace
from nplm_jax.data import neighbours
from nplm_jax.data.neighbours import MAX_NEIGHBOURS
from nplm_jax.training import prior, replay, vmapped
from nplm_jax.training.checkpoints import Store
from nplm_jax.training.loop import prepare_run, run_chunk

V = len(DATA.vocabulary)
SGD = {'optimizer.momentum': 0.0, 'optimizer.schedule': 'constant', 'optimizer.learning_rate': 0.5}
NCE = {**SPARSE, **SGD, 'output.kind': 'nce'}
ADAM = {'optimizer.name': 'adam', 'optimizer.momentum': 0.0, 'optimizer.learning_rate': 0.01}
PRIOR = {'prior.kind': 'pairs', 'prior.strength': 0.03}


def some_lists(num_words):
    """Lists of different lengths: word 0 has no neighbours, word 1 one, word 2 two and so on."""
    return neighbours.pad([[(word + i) % num_words for i in range(1, 1 + word % 7)] for word in range(num_words)])


@pytest.fixture(autouse=True)
def one_line_in_the_registry(monkeypatch):
    monkeypatch.setitem(neighbours.PRIORS, 'pairs', lambda settings, data: some_lists(len(data.vocabulary)))


def numpy_means(C_VxM, lists):
    return np.stack([sum(w * C_VxM[i] for i, w in zip(*row)) for row in zip(*lists)])


def test_penalty_and_gradient_are_numpys_in_float64():
    C_VxM, lists, strength = np.random.default_rng(0).normal(size=(13, 3)), some_lists(13), 0.7
    means_VxM = numpy_means(C_VxM, lists)

    def expected_penalty(C_VxM):
        return 0.5 * strength * ((C_VxM - means_VxM) ** 2).sum()  # the means are held fixed

    expected = np.zeros_like(C_VxM)
    for i in np.ndindex(*C_VxM.shape):
        step = np.zeros_like(C_VxM)
        step[i] = 1e-5
        expected[i] = (expected_penalty(C_VxM + step) - expected_penalty(C_VxM - step)) / 2e-5
    C = jnp.asarray(C_VxM, jnp.float32)
    np.testing.assert_allclose(prior.neighbour_means(C, lists), means_VxM, rtol=1e-5, atol=1e-6)
    extra = {'hyperparameters': {'prior.strength': strength}, 'neighbours': lists}
    updates, _ = prior.draw_to_neighbours().update({'C_VxM': jnp.zeros_like(C)}, None, {'C_VxM': C}, **extra)
    grads = updates['C_VxM']
    np.testing.assert_allclose(grads, expected, rtol=1e-4, atol=1e-5)
    assert not grads[0].any() and grads[1:7].any(axis=1).all()  # word 0 has no neighbours


@pytest.mark.usefixtures('optimised')
@pytest.mark.parametrize('recipe', [SGD, ADAM, NCE], ids=['sgd', 'adam', 'nce'])
def test_each_update_has_the_pull(recipe):
    without = prepare_run(small_settings(recipe), DATA)
    with_prior = prepare_run(replace(without.settings, PRIOR), DATA)
    before = without.init_state().params
    ends = [run_chunk(run.chunk(run.init_state(), 0)._replace(num_steps=1))[0].params for run in (without, with_prior)]
    C, rate = np.asarray(before['C_VxM'], np.float64), with_prior.settings.optimizer.learning_rate
    drawn = np.asarray(ends[0]['C_VxM']) + rate * 0.03 * (numpy_means(C, some_lists(V)) - C)
    np.testing.assert_allclose(ends[1]['C_VxM'], drawn, rtol=1e-4, atol=1e-6)
    for name in ends[0].keys() - {'C_VxM'}:
        np.testing.assert_allclose(*(end[name] for end in ends), rtol=1e-5, atol=1e-6)


def test_strength_zero_is_no_prior_bit_for_bit(tmp_path):
    settings = small_settings()
    expected, _, _ = train(settings, tmp_path / 'none')
    zero, _, _ = train(replace(settings, {**PRIOR, 'prior.strength': 0.0}), tmp_path / 'zero')
    some, _, _ = train(replace(settings, PRIOR), tmp_path / 'some')
    assert same_bits(zero, expected) and not same_bits(some, expected)


def test_stopped_and_resumed_is_bit_for_bit_the_same(tmp_path):
    check_resumed(small_settings({**NCE, **PRIOR}), tmp_path)


def test_runs_of_different_strengths_train_together_as_alone():
    settings = [small_settings({**NCE, **PRIOR, 'prior.strength': strength}) for strength in (0.0, 0.03, 0.3)]
    assert vmapped.group_compatible([*settings, small_settings(NCE)]) == [[0, 1, 2], [3]]
    features = [np.asarray(params['C_VxM']) for params in check_together(settings)]
    assert np.abs(features[0] - features[2]).max() > 1e-4


def test_a_replayed_chunk_has_the_pull_too():
    run = prepare_run(small_settings({**NCE, **PRIOR}), DATA)
    expected, _, _ = run_chunk(run.chunk(run.init_state(), 0))
    state, chunk = run.init_state(), run.chunk(run.init_state(), 0)
    for number in range(4):
        positions_B = chunk.positions_T[7 * number : 7 * number + 7]
        state, _, _ = replay._update(run.program, state, positions_B, chunk.inputs)
    np.testing.assert_allclose(state.params['C_VxM'], expected.params['C_VxM'], rtol=1e-5, atol=1e-6)
    assert replay.replay_update(run, Store(), 6).non_finite is None


def test_unseen_words_come_to_their_neighbours():
    """Words that training never reads keep their random features without a prior."""
    data = dataclasses.replace(DATA, tokens_T=np.where(DATA.tokens_T > 9, 1, DATA.tokens_T))
    distances = []
    for strength in (0.0, 0.3):
        run = prepare_run(small_settings({**NCE, **PRIOR, 'prior.strength': strength}), data)
        state, _, _ = run_chunk(run.chunk(run.init_state(), 0))
        C_VxM = np.asarray(state.params['C_VxM'])
        distances.append(np.linalg.norm(C_VxM[10:13] - numpy_means(C_VxM, some_lists(V))[10:13]))
    assert distances[1] < 0.7 * distances[0]
    assert MAX_NEIGHBOURS > 7


@pytest.mark.eight_devices
@pytest.mark.parametrize(
    'recipe,data,model,mode',
    [({}, 2, 4, 'shard_map'), (NCE, 4, 2, 'shard_map'), (NCE, 8, 1, 'pmap')],
    ids=['full', 'nce', 'nce with pmap'],
)
def test_eight_devices_draw_as_one(recipe, data, model, mode):
    changes = {**recipe, **PRIOR, 'train.batch_size': 16, 'optimizer.clip_norm': 0.0}
    check_eight_devices(changes, data, model, mode)
