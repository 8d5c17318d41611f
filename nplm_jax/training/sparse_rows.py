"""Converts the gradients of a sparse loss, which cover only some table rows, to updates of the tables.

Dims: V vocabulary, B batch, S streams, L tokens per stream, R updated rows, including repetitions.
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
from nplm_jax.training import affixes
from nplm_jax.training.deferred_decay import add_rows


def row_parts(view: View, ids_SxL: jax.Array, tables: Sequence[str]) -> dict[str, list[tuple[jax.Array, jax.Array]]]:
    """Collects the rows of each table in a view, or the gradients of these rows.

    Args:
        view: A view in which `rows` is not None, or its gradients.
        ids_SxL: The input tokens, int32.
        tables: The names of the parameters with one row per output word.

    Returns:
        A dict from table names to lists of parts. A part is a pair (indices, rows) of R row indices, int32, and the
        rows, R x D. A row that was gathered twice occurs twice.
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
    """Converts the gradients of a view to a tree structured like the parameters, with only some rows of each table.

    On a mesh, or with `sums_rows`, the whole gradient of a table is returned if the table has fewer rows than were
    gathered. In this case, the whole gradient is cheaper to sum and to exchange.

    Args:
        view: The gradients of the rows; see `Gradients.view`.
        batch: The batch for which the gradients were computed.
        params: The parameters of the network.
        network: The network, which defines the tables.
        sharding: The sharding of the parameters and the batch.
        sums_rows: Whether to sum the gradients of repeated rows. Otherwise, a row that is gathered twice occurs twice.

    Returns:
        A tuple (gradients, rows). `gradients` contains R x D gradients for each table. `rows` is a dict from the name
        of each table to the indices of these R rows, int32, or to `slice(None)` if the gradient covers the whole table.
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
        if (shared := affixes.name_of(name)) in params:
            shared_FxD = affixes.gradient(params[shared], ids, values, batch.affixes_VxK)
            grads |= constrain({shared: shared_FxD}, sharding)
    return grads, rows


def scatter_to_dense(view: View, batch: Batch, params: Params, network: Network, sharding: MeshSharding) -> Params:
    """Converts the gradients of a view to dense gradients, which are zero in all rows that the loss did not read."""
    grads, rows = row_gradients(view, batch, params, network, sharding, sums_rows=False)
    return add_rows(jax.tree.map(jnp.zeros_like, params), grads, rows)


def sum_rows(
    ids: Sequence[jax.Array], values: Sequence[jax.Array], num_rows: int, sharding: MeshSharding = ONE_DEVICE
) -> tuple[jax.Array, jax.Array]:
    """Sums the values of each row.

    Args:
        ids: The row indices of each part, int32, R.
        values: The values of each part, R x D.
        num_rows: The number of rows of the table.
        sharding: The sharding of the batch; row indices are replicated.

    Returns:
        A tuple (ids, sums). `ids` contains the distinct row indices in ascending order, padded with the invalid index
        `num_rows` to the total length of the parts. `sums` contains the sum of the values of each of these rows.
    """
    sizes = [len(part) for part in ids]
    unique = jnp.unique(jnp.concatenate(ids), size=sum(sizes), fill_value=num_rows, return_inverse=True)
    distinct_R, inverse_R = constrain_replicated(unique, sharding)
    parts = constrain_replicated(jnp.split(inverse_R, list(itertools.accumulate(sizes[:-1]))), sharding)
    return distinct_R, constrain_replicated(_sum(parts, values, sum(sizes)), sharding)


def _sum(ids: Sequence[jax.Array], values: Sequence[jax.Array], num_rows: int) -> jax.Array:
    """Sums the values of each row, part by part. A part that is sharded over devices is first summed on each device."""
    sums = jnp.zeros((num_rows, *values[0].shape[1:]), values[0].dtype)
    for ids_R, values_RxD in zip(ids, values):
        sums = sums.at[ids_R].add(values_RxD)
    return sums
