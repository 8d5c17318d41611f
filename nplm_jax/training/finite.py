"""Detects non-finite numbers (NaN and infinity) in training states and losses.

Dims: S updates per chunk, A arrays.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.utils.errors import NonFiniteError


def first_non_finite(tree: Any) -> str | None:
    """Returns the name of the first floating-point array with a non-finite element, or None if all are finite."""
    named = _named_floats(tree)
    index = int(jax.device_get(_first_non_finite([leaf for _, leaf in named]))) if named else -1
    return None if index < 0 else named[index][0]


def require_finite(state: Any, update: int) -> None:
    """Checks a training state for non-finite numbers.

    It is not necessary to check every update: once a gradient is not finite, the parameters or the optimizer state
    remain non-finite in all later updates.

    Args:
        state: The training state.
        update: The number of the last update, for the error message.

    Raises:
        NonFiniteError: An array has a non-finite element.
    """
    if (name := first_non_finite(state)) is not None:
        raise NonFiniteError(f'{name} after update {update:,} is not finite')


def require_finite_losses(nll_S: np.ndarray, before: int) -> None:
    """Checks the losses of a chunk for non-finite numbers.

    Args:
        nll_S: The mean NLL of each batch.
        before: The number of the last update before the chunk.

    Raises:
        NonFiniteError: A loss is not finite.
    """
    bad = np.flatnonzero(~np.isfinite(nll_S))
    if bad.size:
        raise NonFiniteError(f'the loss of update {before + int(bad[0]) + 1:,} is {nll_S[bad[0]]}')


@jax.jit
def _first_non_finite(arrays: list[jax.Array]) -> jax.Array:
    """Returns the index of the first array with a non-finite element, or -1 if there is none.

    All processes get the same result. The function computes max(|x|), the fastest of the reductions whose result is not
    finite if an element is not finite.
    """
    is_bad_A = ~jnp.isfinite(jnp.stack([jnp.max(jnp.abs(x), initial=0) for x in arrays]))
    return jnp.where(is_bad_A.any(), jnp.argmax(is_bad_A), -1)


def _named_floats(tree: Any) -> list[tuple[str, Any]]:
    """Returns the names and values of the floating-point leaves of a tree."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    named = [(jax.tree_util.keystr(path, simple=True, separator='.'), leaf) for path, leaf in leaves]
    return [(name, leaf) for name, leaf in named if jnp.issubdtype(leaf.dtype, jnp.floating)]
