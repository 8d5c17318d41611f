"""Sparse updates: the rows of the tables that have a gradient, and their sums.

Dims: V vocabulary, B batch, S streams, L tokens of each, R rows that are updated, with repetitions.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from nplm_jax.data.batches import Batch
from nplm_jax.distributed.constraints import constrain, constrain_replicated
from nplm_jax.distributed.sharding import ONE_DEVICE, MeshSharding
from nplm_jax.models.network import Network
from nplm_jax.outputs.output_layer import EMBEDDING, Params, View
from nplm_jax.training.deferred_decay import add_rows


def row_parts(view: View, ids_SxL: jax.Array, tables: Sequence[str]) -> dict[str, list[tuple[jax.Array, jax.Array]]]:
    """Returns the rows of a view, or their gradients, table by table.

    Args:
        view: A view with rows.
        ids_SxL: The tokens that the body reads, int32.
        tables: The names of the parameters with one row per output word.

    Returns:
        The parts of each table: the numbers of rows, int32, R, and these rows, R x D. A row that was gathered twice
        occurs twice.
    """
    assert view.rows is not None
    parts: dict[str, list[tuple[jax.Array, Any]]] = {}
    for name in tables:
        parts[name] = [(view.rows.examples_BxL, view.examples[name]), (view.rows.shared_S, view.shared[name])]
    parts.setdefault(EMBEDDING, []).append((ids_SxL, view.contexts_SxLxM))  # C may be an output table
    return {
        name: [(ids.reshape(-1), values.reshape(-1, *values.shape[ids.ndim :])) for ids, values in of_table]
        for name, of_table in parts.items()
    }


def row_gradients(
    view: View, batch: Batch, params: Params, network: Network, sharding: MeshSharding, sums_rows: bool
) -> tuple[Params, dict[str, Any]]:
    """Returns sparse gradients as a tree like the parameters, and which rows of each table they are of.

    In place of each table the tree has the gradients of R rows, whose numbers are int32, R. Where at least as many rows
    were gathered as the table has, it has the gradient of the whole table instead, and `slice(None)` for the numbers,
    which is less to add up and to send: on a mesh, and with `sums_rows`.

    Args:
        view: The gradients of the rows: `Gradients.view`.
        batch: The batch.
        params: The parameters.
        network: Their network.
        sharding: The sharding of the parameters and the batch.
        sums_rows: Whether each row occurs once, with the sum of its gradients; else a row that was gathered twice
            occurs twice.
    """
    grads: Params = dict(view.shared)
    rows: dict[str, Any] = {}
    ids_SxL = constrain_replicated(batch.recent(network.body.layout.lookback).ids_SxL, sharding)
    for name, parts in row_parts(view, ids_SxL, network.tables.words).items():
        ids, values = zip(*parts)
        num_rows, is_whole = len(params[name]), sum(map(len, ids)) >= len(params[name])
        if is_whole and (sums_rows or sharding.mesh is not None):
            rows[name] = slice(None)
            grads |= constrain({name: _sum(ids, values, num_rows)}, sharding)
        elif sums_rows:
            rows[name], grads[name] = sum_rows(ids, values, num_rows, sharding)
        else:
            rows[name] = jnp.concatenate(ids)
            grads[name] = jnp.concatenate(constrain_replicated(values, sharding))
    return grads, rows


def scatter_to_dense(view: View, batch: Batch, params: Params, network: Network, sharding: MeshSharding) -> Params:
    """Returns sparse gradients in the structure of the parameters, with zeros in the rows that they leave out."""
    grads, rows = row_gradients(view, batch, params, network, sharding, sums_rows=False)
    return add_rows(jax.tree.map(jnp.zeros_like, params), grads, rows)


def sum_rows(
    ids: Sequence[jax.Array], values: Sequence[jax.Array], num_rows: int, sharding: MeshSharding = ONE_DEVICE
) -> tuple[jax.Array, jax.Array]:
    """Sums the values of each row.

    Args:
        ids: The row numbers of each part, int32, R.
        values: The values of each part, R x D.
        num_rows: The number of rows of the table.
        sharding: The sharding of the batch; the row numbers are on every device.

    Returns:
        Distinct row numbers in rising order, padded with `num_rows`, which is no row; and their sums. There are as many
        of both as rows in all parts.
    """
    sizes = [len(part) for part in ids]
    unique = jnp.unique(jnp.concatenate(ids), size=sum(sizes), fill_value=num_rows, return_inverse=True)
    distinct_R, inverse_R = constrain_replicated(unique, sharding)
    parts = constrain_replicated(jnp.split(inverse_R, list(itertools.accumulate(sizes[:-1]))), sharding)
    return distinct_R, constrain_replicated(_sum(parts, values, sum(sizes)), sharding)


def _sum(ids: Sequence[jax.Array], values: Sequence[jax.Array], num_rows: int) -> jax.Array:
    """Sums the values of each row, part by part: one that is divided over devices is summed on each of them first."""
    sums = jnp.zeros((num_rows, *values[0].shape[1:]), values[0].dtype)
    for ids_R, values_RxD in zip(ids, values):
        sums = sums.at[ids_R].add(values_RxD)
    return sums
