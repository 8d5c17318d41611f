"""Determines which words attention may use in streams of lines.

Dims: S streams, T new words per stream, R cached words per stream, L = R + T.
"""

import jax
import jax.numpy as jnp


def visible(
    memory: int, kept_S: jax.Array, starts_SxT: jax.Array | None, num_words: int
) -> tuple[jax.Array, jax.Array]:
    """Determines to which of the R cached words and T new words each new word attends.

    Args:
        memory: R, the number of cached words.
        kept_S: For each stream, the number of cached words that belong to the current line.
        starts_SxT: Whether each of the T words begins a line, or None if no word begins a line.
        num_words: T, the number of new words.

    Returns:
        The attention mask, S x T x (R + T), and the number of cached words to keep in each stream, S.
    """
    R, T = memory, num_words
    places_L = jnp.arange(-R, T)  # positions relative to the first of the T words
    first_Sx1 = -kept_S[:, None]  # position at which the line starts
    if starts_SxT is None:
        first_SxT = jnp.broadcast_to(first_Sx1, (kept_S.shape[0], T))
    else:
        first_SxT = jax.lax.cummax(jnp.where(starts_SxT, jnp.arange(T)[None], first_Sx1), axis=1)
    oldest_SxT = jnp.maximum(first_SxT, jnp.arange(T)[None] - R)
    seen_SxTxL = places_L[None, None] >= oldest_SxT[:, :, None]
    seen_SxTxL &= places_L[None, None] <= jnp.arange(T)[None, :, None]
    return seen_SxTxL, jnp.minimum(T - first_SxT[:, -1], R)
