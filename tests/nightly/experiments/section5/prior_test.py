"""Tests the optimizer that draws the features of each word towards the features of related words."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DATA, SPARSE, check_eight_devices, check_resumed, run_chunk, same_bits, small_settings, train

from experiments.paper.section5.plugins import neighbours, prior
from nplm_jax.runs.training_from_settings import prepare_run

V = len(DATA.vocabulary)
PRIOR = 'experiments.paper.section5.plugins.prior:sgd'
SGD = {'optimizer.schedule': 'constant', 'optimizer.learning_rate': 0.5}
NCE = {**SPARSE, **SGD, 'output.kind': 'nce'}


def some_lists(num_words):
    """Returns lists of different lengths: word 0 has no neighbours, word 1 has one, word 2 has two, and so on."""
    return neighbours.pad([[(word + i) % num_words for i in range(1, 1 + word % 7)] for word in range(num_words)])


@pytest.fixture
def with_prior(tmp_path):
    """Returns a function that creates settings of SGD with a prior of a given strength."""
    neighbours.save(tmp_path / 'lists.npz', some_lists(V))

    def make(strength, recipe=NCE):
        options = {'neighbours': str(tmp_path / 'lists.npz'), 'strength': strength}
        changes = {f'optimizer.options.{key}': value for key, value in options.items()}
        changes |= {'optimizer.name': PRIOR, 'optimizer.tables': 'same', 'optimizer.table_rate': 1.0}
        return small_settings({**recipe, **changes})

    return make


def numpy_means(C_VxM, lists):
    return np.stack([sum(w * C_VxM[i] for i, w in zip(*row)) for row in zip(*lists)])


def test_penalty_and_gradient_are_numpys_in_float64(tmp_path):
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
    np.testing.assert_allclose(prior.penalty(C, lists, strength), expected_penalty(C_VxM), rtol=1e-5)
    grads = jax.grad(prior.penalty)(C, lists, strength)
    np.testing.assert_allclose(grads, expected, rtol=1e-4, atol=1e-5)
    assert not grads[0].any() and grads[1:7].any(axis=1).all()  # word 0 has no neighbours

    neighbours.save(tmp_path / 'lists.npz', lists)
    link = prior.draw_to_neighbours(str(tmp_path / 'lists.npz'), strength)
    params = {'C_VxM': C, 'b_V': jnp.ones(13)}
    updates, _ = link.update(jax.tree.map(jnp.ones_like, params), link.init(params), params)
    np.testing.assert_allclose(updates['C_VxM'] - 1, expected, rtol=1e-4, atol=1e-5)
    assert (updates['b_V'] == 1).all()


@pytest.mark.parametrize('recipe', [SGD, NCE], ids=['full', 'nce'])
def test_strength_zero_is_gradient_descent(recipe, tmp_path, with_prior):
    expected, _, _ = train(small_settings(recipe), tmp_path / 'none')
    zero, _, _ = train(with_prior(0.0, recipe), tmp_path / 'zero')
    some, _, _ = train(with_prior(0.03, recipe), tmp_path / 'some')
    for name in expected:
        np.testing.assert_allclose(zero[name], expected[name], rtol=1e-3, atol=1e-4)
    assert not same_bits(some, zero)


def test_stopped_and_resumed_is_bit_for_bit_the_same(tmp_path, with_prior):
    check_resumed(with_prior(0.03), tmp_path)


def test_unseen_words_come_to_their_neighbours(with_prior):
    """Without a prior, words that training never reads keep their random features."""
    data = dataclasses.replace(DATA, tokens_T=np.where(DATA.tokens_T > 9, 1, DATA.tokens_T))
    distances = []
    for strength in (0.0, 0.3):
        run = prepare_run(with_prior(strength), data)
        state, _ = run_chunk(run.chunk(run.init_state(), 0))
        C_VxM = np.asarray(state.params['C_VxM'])
        distances.append(np.linalg.norm(C_VxM[10:13] - numpy_means(C_VxM, some_lists(V))[10:13]))
    assert distances[1] < 0.7 * distances[0]
    assert neighbours.MAX_NEIGHBOURS > 7


@pytest.mark.eight_devices
@pytest.mark.parametrize(
    'recipe,data,model,mode',
    [(SGD, 2, 4, 'shard_map'), (NCE, 4, 2, 'shard_map'), (NCE, 8, 1, 'pmap')],
    ids=['full', 'nce', 'nce with pmap'],
)
def test_eight_devices_draw_as_one(recipe, data, model, mode, with_prior, tmp_path):
    options = {'neighbours': str(tmp_path / 'lists.npz'), 'strength': 0.03}
    optimizer = {f'optimizer.options.{key}': value for key, value in options.items()}
    with_prior(0.03)
    optimizer |= {'optimizer.name': PRIOR, 'optimizer.tables': 'same'}
    changes = {**recipe, **optimizer, 'train.batch_size': 16, 'optimizer.clip_norm': 0.0}
    check_eight_devices(changes, data, model, mode)
