"""Gathers the rows of the parameters that a sparse update reads, and scatter-adds their updates.

Dims: V vocabulary, B batch, N context words, M features, L output rows of each example, S output rows of all examples,
R rows that are updated, with repetitions.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from nplm_jax.outputs.output_layer import EMBEDDING, Params

CONTEXTS = 'e_BxNxM'  # the features of the context words, among the parameters per example


class Rows(NamedTuple):
    """The row numbers that one update reads, int32. The last three are what `SparseOutputLayer.rows` returns.

    Attributes:
        contexts_BxN: Rows of C: the context words of each example.
        example_rows_BxL: Rows of the output tables that belong to each example.
        shared_S: Rows of the output tables that all examples share.
        draws: What the output layer knows of the rows of each example; None for nothing.
    """

    contexts_BxN: jax.Array
    example_rows_BxL: jax.Array
    shared_S: jax.Array
    draws: Any = None


def gather_rows(params: Params, rows: Rows, tables: Sequence[str]) -> tuple[Params, Params]:
    """Gathers the rows.

    Args:
        params: The parameters.
        rows: Which rows.
        tables: The names of the parameters with one row per output word.

    Returns:
        The parameters that all examples share: the tables' rows `shared_S`, and every other parameter. And those of
        each example: the tables' rows `example_rows_BxL`, and C's rows, B x N x M, under the name CONTEXTS.
    """
    shared = {name: value for name, value in params.items() if name != EMBEDDING}
    shared |= {name: params[name][rows.shared_S] for name in tables}
    per_example = {name: params[name][rows.example_rows_BxL] for name in tables}
    return shared, per_example | {CONTEXTS: params[EMBEDDING][rows.contexts_BxN]}


def table_gradients(
    gathered: tuple[Params, Params], rows: Rows, tables: Sequence[str]
) -> tuple[Params, dict[str, jax.Array]]:
    """Joins what `gather_rows` returned, or gradients in that structure, table by table.

    Returns:
        A tree like the parameters, but with gathered rows, R x D, in place of each table; and the numbers of the rows
        of each table, int32, R. A row that was gathered twice is there twice.
    """
    shared, per_example = gathered
    joined, ids = dict(shared), {}
    for name in dict.fromkeys((*tables, EMBEDDING)):
        parts = []
        if name in tables:
            parts += [(rows.example_rows_BxL, per_example[name]), (rows.shared_S, shared[name])]
        if name == EMBEDDING:
            parts.append((rows.contexts_BxN, per_example[CONTEXTS]))
        row_shape = parts[0][1].shape[parts[0][0].ndim :]
        ids[name] = jnp.concatenate([numbers.reshape(-1) for numbers, _ in parts])
        joined[name] = jnp.concatenate([values.reshape(-1, *row_shape) for _, values in parts])
    return joined, ids


def sum_rows(ids_R: jax.Array, values_RxD: jax.Array, num_rows: int) -> tuple[jax.Array, jax.Array]:
    """Sums the values of each row.

    Returns:
        Distinct row numbers in rising order, padded with `num_rows`, which is no row; and their sums, R x D.
    """
    size = len(ids_R)
    distinct_R, inverse_R = jnp.unique(ids_R, size=size, fill_value=num_rows, return_inverse=True)
    return distinct_R, jax.ops.segment_sum(values_RxD, inverse_R, size)


def add_rows(params: Params, updates: Params, ids: dict[str, jax.Array]) -> Params:
    """Adds updates in the structure of `table_gradients`. A row that is there twice gets both updates.

    Each table has one scatter for all its rows: before a second one XLA may copy the whole table.
    """

    def add(name: str) -> Any:
        if name in ids:
            return params[name].at[ids[name]].add(updates[name], mode='drop')
        return jax.tree.map(jnp.add, params[name], updates[name])

    return {name: add(name) for name in params}
