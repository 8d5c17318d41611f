"""The rows that a cheap gradient touches: gathered into two small Params, and their updates added to the large one.

Dims: V words, B examples, N context words, M features, L output rows of each example, S output rows of all,
R = B L + S.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from nplm_jax.models import nplm


def gather(
    params: nplm.Params, contexts_BxN: jax.Array, own_BxL: jax.Array, shared_S: jax.Array
) -> tuple[nplm.Params, nplm.Params]:
    """Returns: what all examples share, with the output rows `shared_S` and without C; and what each has of its own.

    That is of C the vectors of its context, B x N x M, and of U, W and b the output rows `own_BxL`.
    """

    def rows(ids):
        named = {k: getattr(params, k) for k in ('U_VxK', 'W_VxP', 'b_V')}
        return {k: None if w is None else w[ids] for k, w in named.items()}

    shared = params.replace(C_VxM=None, **rows(shared_S))
    own = params.replace(C_VxM=params.C_VxM[contexts_BxN], H_KxP=None, d_K=None, classes=None, **rows(own_BxL))
    return shared, own


def add(
    params: nplm.Params,
    shared: nplm.Params,
    own: nplm.Params,
    contexts_BxN: jax.Array,
    own_BxL: jax.Array,
    shared_S: jax.Array,
) -> nplm.Params:
    """Adds updates shaped like what `gather` gave; a row that was gathered twice gets both. In place when donated."""

    ids_R = jnp.concatenate([own_BxL.reshape(-1), shared_S])

    def at(name):  # at once: after a first scatter XLA may copy all |V| rows for a second one
        if (weights := getattr(params, name)) is None:
            return None
        of_own = getattr(own, name).reshape(-1, *weights.shape[1:])
        return weights.at[ids_R].add(jnp.concatenate([of_own, getattr(shared, name)]))

    whole = {k: jax.tree.map(jnp.add, getattr(params, k), getattr(shared, k)) for k in ('H_KxP', 'd_K', 'classes')}
    rows = {k: at(k) for k in ('U_VxK', 'W_VxP', 'b_V')}
    return params.replace(C_VxM=params.C_VxM.at[contexts_BxN].add(own.C_VxM), **whole, **rows)


def shrink(params: nplm.Params, factor: jax.Array) -> nplm.Params:
    """All weights times `factor`, the biases as they are: many steps of the regulariser's gradient at once."""

    def scaled(holder, names):
        return holder.replace(**{k: None if (w := getattr(holder, k)) is None else w * factor for k in names})

    params = scaled(params, ('C_VxM', 'H_KxP', 'U_VxK', 'W_VxP'))
    return params if params.classes is None else params.replace(classes=scaled(params.classes, ('U_GxK', 'W_GxP')))
