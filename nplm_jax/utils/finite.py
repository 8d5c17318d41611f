"""Whether numbers are finite, and how large they are."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class NonFiniteError(ArithmeticError):
    """A run met a loss, a gradient or a parameter that is not a finite number.

    seen_at: the update after which it was seen, and which it may be older than; None where training had no part in it.
    """

    def __init__(self, message: str, seen_at: int | None = None):
        super().__init__(message)
        self.seen_at = seen_at


def first_not_finite(tree: Any) -> str | None:
    """The name of the first array that holds a number that is not finite; None when all are. Reads each array once."""
    named = _floats(tree)
    place = int(_first_not_finite([leaf for _, leaf in named])) if named else -1
    return None if place < 0 else named[place][0]


def check(state: Any, update: int) -> None:
    """Raises: NonFiniteError unless all of a training state is finite.

    Whatever is not finite in a gradient stays so in the parameters, or in what the optimizer keeps of them.
    """
    if (name := first_not_finite(state)) is not None:
        raise NonFiniteError(f'{name} after update {update:,} is not finite', update)


def check_losses(nll_S: np.ndarray, before: int) -> None:
    """Raises: NonFiniteError unless the losses of all updates after the update `before` are finite."""
    bad = np.flatnonzero(~np.isfinite(nll_S))
    if bad.size:
        message = f'the loss of update {before + int(bad[0]) + 1:,} is {nll_S[bad[0]]}'
        raise NonFiniteError(message, before + len(nll_S))


def norms(tree: Any) -> dict[str, float]:
    """The Euclidean norm of each array, by name, in float64: it is finite wherever the numbers are."""
    return {name: float(np.linalg.norm(np.asarray(leaf, np.float64).ravel())) for name, leaf in _floats(tree)}


@jax.jit
def _first_not_finite(arrays: list[jax.Array]) -> jax.Array:
    """Its place, or -1: one number, which every process has. The maximum is the quickest to ask for."""
    bad_L = ~jnp.isfinite(jnp.stack([jnp.max(jnp.abs(x), initial=0) for x in arrays]))
    return jnp.where(bad_L.any(), jnp.argmax(bad_L), -1)


def _floats(tree: Any) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    named = [(jax.tree_util.keystr(path, simple=True, separator='.'), leaf) for path, leaf in leaves]
    return [(name, leaf) for name, leaf in named if jnp.issubdtype(leaf.dtype, jnp.floating)]
