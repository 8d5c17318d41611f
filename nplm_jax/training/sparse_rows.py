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


def scatter_add_rows(params: Params, shared: Params, per_example: Params, rows: Rows, tables: Sequence[str]) -> Params:
    """Adds updates in the structure that `gather_rows` returned. A row that was gathered twice gets both updates."""
    updated = {name: jax.tree.map(jnp.add, params[name], shared[name]) for name in shared if name not in tables}
    for name in dict.fromkeys((*tables, EMBEDDING)):
        ids, updates = [], []
        if name in tables:
            ids += [rows.example_rows_BxL, rows.shared_S]
            updates += [per_example[name], shared[name]]
        if name == EMBEDDING:
            ids.append(rows.contexts_BxN)
            updates.append(per_example[CONTEXTS])
        # One scatter for all rows: before a second one XLA may copy the whole table.
        ids_R = jnp.concatenate([x.reshape(-1) for x in ids])
        row_shape = params[name].shape[1:]
        updated[name] = params[name].at[ids_R].add(jnp.concatenate([x.reshape(-1, *row_shape) for x in updates]))
    return updated
