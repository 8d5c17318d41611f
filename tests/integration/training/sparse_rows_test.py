"""Tests which rows a sparse update reads, and how it changes the other parameters."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_batch, make_network

from nplm_jax.distributed.sharding import ONE_DEVICE, MeshSharding, make_mesh
from nplm_jax.training import sparse_rows
from nplm_jax.training.deferred_decay import add_rows
from nplm_jax.training.gradients import sparse_view

V = 31
CONTEXTS = jnp.asarray(np.random.default_rng(0).integers(0, V, (9, 3)), jnp.int32)
TARGETS = jnp.asarray([0, 6, 7, 30, 12, 29, 5, 5, 18], jnp.int32)


def make():
    output = {'output.kind': 'two_level', 'output.num_shortlist': 7, 'output.classes': 4}
    network = make_network(V, output)
    return network, network.init(jax.random.key(3))


def view_of(network, params, batch):
    rows = network.output.rows(batch)
    return jax.jit(lambda params: sparse_view(params, network, batch, rows, None, ONE_DEVICE))(params)


def ones_of(view):
    """Returns gradients of one for all elements of a view."""
    return jax.tree.map(jnp.ones_like, view)._replace(rows=view.rows)


def test_rows_are_gathered_by_number_and_updates_added_once_for_each_time_a_row_was_gathered():
    network, params = make()
    batch, tables = make_batch(CONTEXTS, TARGETS), network.tables.words
    assert set(tables) == {'U_VxK', 'W_VxP', 'b_V'}
    view = view_of(network, params, batch)
    rows = view.rows
    for name in tables:
        np.testing.assert_array_equal(view.shared[name], params[name][:7])
        np.testing.assert_array_equal(view.examples[name], params[name][rows.examples_BxL])
    np.testing.assert_array_equal(view.contexts_SxLxM, params['C_VxM'][CONTEXTS])
    updates, ids = sparse_rows.row_gradients(ones_of(view), batch, params, network, ONE_DEVICE, sums_rows=False)
    updated = jax.jit(add_rows)(params, updates, ids)
    assert jax.tree.structure(updated) == jax.tree.structure(params)
    for name, ids in {'C_VxM': [CONTEXTS], **dict.fromkeys(tables, rows[:2])}.items():
        times_V = sum(np.bincount(np.ravel(x), minlength=V) for x in ids)
        added = np.asarray(updated[name] - params[name]).reshape(V, -1)
        np.testing.assert_allclose(added, np.broadcast_to(times_V[:, None], added.shape), atol=1e-5)
    np.testing.assert_allclose(updated['classes']['U_GxK'], params['classes']['U_GxK'] + 1)
    np.testing.assert_allclose(updated['H_KxP'], params['H_KxP'] + 1)


def test_the_values_of_a_row_are_summed_and_no_row_is_named_twice():
    ids_R = jnp.asarray([5, 2, 5, 30, 2, 2], jnp.int32)
    values_RxD = jnp.arange(12.0).reshape(6, 2)
    parts = (ids_R[:4], ids_R[4:]), (values_RxD[:4], values_RxD[4:])
    distinct_R, sums_RxD = jax.jit(sparse_rows.sum_rows, static_argnums=2)(*parts, V)
    np.testing.assert_array_equal(distinct_R, [2, 5, 30, V, V, V])
    np.testing.assert_array_equal(sums_RxD, [[2 + 8 + 10, 3 + 9 + 11], [0 + 4, 1 + 5], [6, 7], [0, 0], [0, 0], [0, 0]])
    added = add_rows({'U_VxK': jnp.zeros((V, 2))}, {'U_VxK': sums_RxD}, {'U_VxK': distinct_R})
    np.testing.assert_array_equal(added['U_VxK'][jnp.asarray([2, 5, 30])], sums_RxD[:3])
    assert np.count_nonzero(np.any(added['U_VxK'], axis=1)) == 3


@pytest.mark.parametrize('sums_rows', [True, False])
def test_a_table_with_fewer_rows_than_were_gathered_has_its_whole_gradient(sums_rows):
    network, params = make()
    mesh = MeshSharding(make_mesh(1, 1))
    many = jnp.asarray(np.random.default_rng(0).integers(0, V, (4 * V, 3)), jnp.int32)
    few, gathered = many[:3], {}
    for contexts in (many, few):
        batch = make_batch(contexts, contexts[:, 0])
        view = ones_of(view_of(network, params, batch))
        gathered[len(contexts)] = sparse_rows.row_gradients(view, batch, params, network, mesh, sums_rows)
        dense = sparse_rows.scatter_to_dense(view, batch, params, network, ONE_DEVICE)
        updated = add_rows(jax.tree.map(jnp.zeros_like, params), *gathered[len(contexts)])
        jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-4), updated, dense)
    (grads, whole), (_, some) = gathered[len(many)], gathered[len(few)]
    assert whole == dict.fromkeys((*network.tables.words, 'C_VxM'), slice(None))
    assert grads['C_VxM'].shape == params['C_VxM'].shape
    assert not any(isinstance(numbers, slice) for numbers in some.values())
