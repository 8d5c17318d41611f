"""What the networks' files share: an initialiser and dropout."""

from __future__ import annotations

import jax
import jax.numpy as jnp

Axis = str | tuple[str, ...] | None  # a named axis of the device mesh, or several that act as one


def uniform(key: jax.Array, shape: tuple[int, ...], bound: float) -> jax.Array:
    """Returns float32 numbers drawn evenly from [-bound, bound)."""
    return jax.random.uniform(key, shape, jnp.float32, -bound, bound)


def dropout(key: jax.Array, values_BxD: jax.Array, rate: float, axis: Axis = None) -> jax.Array:
    """Zeroes a share `rate` of the values and scales up the rest.

    Args:
        key: A random key.
        values_BxD: The values, one row an example.
        rate: The probability that a value is zeroed.
        axis: The named axis over which the batch is divided. With it every device draws the mask of the whole batch
            and takes its own rows, so that the same values are zeroed as on one device.

    Returns:
        Values of the same shape.
    """
    B, D = values_BxD.shape
    if axis is None:
        keep_BxD = jax.random.bernoulli(key, 1 - rate, (B, D))
    else:
        batch_keep = jax.random.bernoulli(key, 1 - rate, (B * jax.lax.axis_size(axis), D))
        keep_BxD = jax.lax.dynamic_slice_in_dim(batch_keep, B * jax.lax.axis_index(axis), B)
    return jnp.where(keep_BxD, values_BxD / (1 - rate), 0)
