"""Checks that numbers are finite, and norms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.utils.errors import NonFiniteError


def first_not_finite(tree: Any) -> str | None:
    """Returns the name of the first floating-point array with a number that is not finite; None if all are finite."""
    named = _named_floats(tree)
    index = int(_first_not_finite([leaf for _, leaf in named])) if named else -1
    return None if index < 0 else named[index][0]


def check(state: Any, update: int) -> None:
    """Raises NonFiniteError unless every array of the training state after the update `update` is finite.

    A number of a gradient that is not finite stays so in the parameters or in the optimizer's state, so that a check
    from time to time finds it.
    """
    if (name := first_not_finite(state)) is not None:
        raise NonFiniteError(f'{name} after update {update:,} is not finite', update)


def check_losses(nll_S: np.ndarray, before: int) -> None:
    """Raises NonFiniteError unless the losses of the S updates that follow the update `before` are finite."""
    bad = np.flatnonzero(~np.isfinite(nll_S))
    if bad.size:
        message = f'the loss of update {before + int(bad[0]) + 1:,} is {nll_S[bad[0]]}'
        raise NonFiniteError(message, before + len(nll_S))


def norms(tree: Any) -> dict[str, float]:
    """Returns the Euclidean norm of each array by name, in float64, in which no sum of float32 squares overflows."""
    return {name: float(np.linalg.norm(np.asarray(leaf, np.float64).ravel())) for name, leaf in _named_floats(tree)}


@jax.jit
def _first_not_finite(arrays: list[jax.Array]) -> jax.Array:
    """Returns the index of the first array with a number that is not finite, or -1; every process gets the number.

    The largest magnitude of an array is not finite if one of its numbers is not, and is the fastest reduction.
    """
    bad_L = ~jnp.isfinite(jnp.stack([jnp.max(jnp.abs(x), initial=0) for x in arrays]))
    return jnp.where(bad_L.any(), jnp.argmax(bad_L), -1)


def _named_floats(tree: Any) -> list[tuple[str, Any]]:
    """Returns the floating-point leaves of a tree with their names."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    named = [(jax.tree_util.keystr(path, simple=True, separator='.'), leaf) for path, leaf in leaves]
    return [(name, leaf) for name, leaf in named if jnp.issubdtype(leaf.dtype, jnp.floating)]
