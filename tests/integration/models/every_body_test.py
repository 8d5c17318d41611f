"""Tests every body: predictions do not depend on later words, texts can be read in parts, and runs resume."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DATA, check_resumed, make_network, others_nightly, small_settings

from nplm_jax.config.registry import NETWORKS
from nplm_jax.models import network_reading
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import step

V, T = 30, 24
IDS_SxT = np.random.default_rng(0).integers(1, V, (2, T)).astype(np.int32)
SHAPE = {
    'model.n': 4,
    'model.m': 6,
    'model.h': 8,
    'model.layers': 2,
    'model.direct': False,
    'model.averages': 1,
    'model.heads': 2,
    'model.memory': 4,
}
STREAMS = {'train.batch_size': 16, 'model.bptt_length': 4}
QUICK = 'nplm', 'lstm', 'mogrifier', 'attentive_mogrifier', 'transformer'
each_family = pytest.mark.parametrize('family', others_nightly(NETWORKS, QUICK))


def changes_for(family):
    return {'model.family': family, **STREAMS, **SHAPE}


@pytest.fixture
def network(family):
    return make_network(V, changes_for(family))


@pytest.fixture
def params(network):
    """Returns random parameters without zeros, so every possible dependence takes effect."""
    params = network.init(jax.random.key(0))
    keys = iter(jax.random.split(jax.random.key(1), len(jax.tree.leaves(params))))
    return jax.tree.map(lambda x: x + 0.1 * jax.random.normal(next(keys), x.shape), params)


def joined(features):
    return jnp.concatenate(list(features.values()), axis=2)


def read(network, params, ids_SxT):
    """Returns the features after each word, from the beginning of two texts."""
    state = network_reading.start_state(network, 2)
    return joined(network_reading.read(network, params, state, jnp.asarray(ids_SxT))[0])


@each_family
def test_features_depend_on_the_words_in_reach_and_on_no_later_one(network, params):
    body, R = network.body, network.body.lookback
    e_1xLxM = jax.random.normal(jax.random.key(2), (1, R + T, body.m))
    outputs = lambda e: joined(body.features(params, e, body.start(1)).features)[0].sum(axis=1)  # noqa: E731
    jacobian_TxLxM = jax.jit(jax.jacrev(outputs))(e_1xLxM)[:, 0]
    depends_TxL = np.abs(jacobian_TxLxM).max(axis=2) > 0
    distance_TxL = R + np.arange(T)[:, None] - np.arange(R + T)[None]
    reach = R + T if body.reach is None else body.reach
    np.testing.assert_array_equal(depends_TxL, (distance_TxL >= 0) & (distance_TxL < reach))


@each_family
def test_later_words_in_another_order_change_no_bit(network, params):
    permuted_SxT = IDS_SxT.copy()
    permuted_SxT[:, 11:] = permuted_SxT[:, 11:][:, ::-1]
    first, second = (np.asarray(read(network, params, ids)) for ids in (IDS_SxT, permuted_SxT))
    np.testing.assert_array_equal(first[:, :11], second[:, :11])
    assert np.any(first[:, 11:] != second[:, 11:])


@each_family
@pytest.mark.parametrize('sizes', [(1,) * T, (5, 1, 16, 2)], ids=('word by word', 'in parts'))
def test_words_read_in_parts_have_the_same_features(network, params, sizes):
    state, found = network_reading.start_state(network, 2), []
    step = jax.jit(network_reading.read, static_argnames='network')
    for ids in np.split(IDS_SxT, np.cumsum(sizes)[:-1], axis=1):
        features, state = step(network, params, state, ids)
        found.append(joined(features))
    whole = read(network, params, IDS_SxT)
    np.testing.assert_allclose(jnp.concatenate(found, axis=1), whole, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('family', others_nightly(NETWORKS, ('nplm', 'attentive_mogrifier')))
def test_updates_do_not_change_the_types_of_the_initial_state(family):
    """Otherwise, JAX would compile the updates twice. A weak type is the type of a Python number, as in 2.0 * x."""
    run = prepare_run(small_settings({**changes_for(family), 'optimizer.name': 'rowwise_adam'}), DATA)

    def types(state):
        return jax.tree.map(lambda x: (x.shape, x.dtype, getattr(x, 'weak_type', False)), state)

    state = run.init_state()
    before, is_weak = types(state), [getattr(x, 'weak_type', False) for x in jax.tree.leaves(state)]
    updated = jax.eval_shape(step.execute_steps, *run.chunk(state, 0))[0]
    assert not any(is_weak) and types(updated) == before


@pytest.mark.parametrize('family', others_nightly(NETWORKS, ('nplm', 'lstm')))
def test_training_stopped_and_resumed_is_bit_for_bit_the_same(family, tmp_path):
    check_resumed(small_settings({**changes_for(family), 'train.steps_per_execution': 5}), tmp_path)
