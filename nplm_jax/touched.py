"""The rows that a cheap gradient touches: gathered into a small Params, and their updates added to the large one.

Dims: V words, B examples, N context words, R rows of the output layer.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from nplm_jax import nplm


def gather(params: nplm.Params, contexts_BxN: jax.Array, rows_R: jax.Array) -> tuple[nplm.Params, jax.Array]:
    """Params whose words are the places of the contexts, B*N of them, and whose output words are `rows_R`.

    Returns: these, and the contexts as places: a function of both is one of params and the contexts.
    """
    local = params.replace(
        C_VxM=params.C_VxM[contexts_BxN.reshape(-1)],
        U_VxK=None if params.U_VxK is None else params.U_VxK[rows_R],
        W_VxP=None if params.W_VxP is None else params.W_VxP[rows_R],
        b_V=params.b_V[rows_R],
    )
    return local, jnp.arange(contexts_BxN.size, dtype=jnp.int32).reshape(contexts_BxN.shape)


def add(params: nplm.Params, updates: nplm.Params, contexts_BxN: jax.Array, rows_R: jax.Array) -> nplm.Params:
    """Adds updates shaped like `gather`'s Params; a row that was gathered twice gets both. In place when donated."""

    def at(rows, weights, more):
        return None if weights is None else weights.at[rows].add(more)

    whole = {k: jax.tree.map(jnp.add, getattr(params, k), getattr(updates, k)) for k in ('H_KxP', 'd_K', 'classes')}
    return params.replace(
        **whole,
        C_VxM=at(contexts_BxN.reshape(-1), params.C_VxM, updates.C_VxM),
        U_VxK=at(rows_R, params.U_VxK, updates.U_VxK),
        W_VxP=at(rows_R, params.W_VxP, updates.W_VxP),
        b_V=at(rows_R, params.b_V, updates.b_V),
    )


def shrink(params: nplm.Params, factor: jax.Array) -> nplm.Params:
    """All weights times `factor`, the biases as they are: many steps of the regulariser's gradient at once."""

    def scaled(holder, names):
        return holder.replace(**{k: None if (w := getattr(holder, k)) is None else w * factor for k in names})

    params = scaled(params, ('C_VxM', 'H_KxP', 'U_VxK', 'W_VxP'))
    return params if params.classes is None else params.replace(classes=scaled(params.classes, ('U_GxK', 'W_GxP')))
