"""What the networks' files share: an initialiser, dropout, and products in a lower precision."""

from typing import Literal

import jax
import jax.numpy as jnp

Axis = str | tuple[str, ...] | None  # a named axis of the device mesh, or several that act as one
Precision = Literal['float32', 'bfloat16']


def uniform(key: jax.Array, shape: tuple[int, ...], bound: float) -> jax.Array:
    """Returns float32 numbers drawn evenly from [-bound, bound)."""
    return jax.random.uniform(key, shape, jnp.float32, -bound, bound)


def dropout(key: jax.Array, values_BxD: jax.Array, rate: float, axis: Axis = None, rows_per_mask: int = 1) -> jax.Array:
    """Zeroes a share `rate` of the values and scales up the rest.

    Args:
        key: A random key.
        values_BxD: The values, one row an example.
        rate: The probability that a value is zeroed.
        axis: The named axis over which the batch is divided. With it every device draws the mask of the whole batch
            and takes its own rows, so that the same values are zeroed as on one device.
        rows_per_mask: How many consecutive rows share a mask: the words of a stream, for variational dropout (Gal and
            Ghahramani, 2016).

    Returns:
        Values of the same shape.
    """
    B, D = values_BxD.shape
    num_masks = B // rows_per_mask
    if axis is None:
        keep = jax.random.bernoulli(key, 1 - rate, (num_masks, D))
    else:
        batch_keep = jax.random.bernoulli(key, 1 - rate, (num_masks * jax.lax.axis_size(axis), D))
        keep = jax.lax.dynamic_slice_in_dim(batch_keep, num_masks * jax.lax.axis_index(axis), num_masks)
    keep_BxD = keep if rows_per_mask == 1 else jnp.repeat(keep, rows_per_mask, axis=0)
    return jnp.where(keep_BxD, values_BxD / (1 - rate), 0)


def matmul(left_BxD: jax.Array, right_DxK: jax.Array, precision: Precision) -> jax.Array:
    """Returns the product of two float32 matrices, float32, B x K.

    Args:
        left_BxD: The left matrix.
        right_DxK: The right matrix.
        precision: bfloat16 rounds the factors of this product and of its gradients; sums are float32. It supports
            reverse-mode differentiation, once.
    """
    return left_BxD @ right_DxK if precision == 'float32' else _matmul_bfloat16(left_BxD, right_DxK)


@jax.custom_vjp
def _matmul_bfloat16(left_BxD: jax.Array, right_DxK: jax.Array) -> jax.Array:
    # The gradient's products would otherwise be float32: JAX promotes their bfloat16 factors to the cotangent's type.
    return jnp.dot(left_BxD.astype('bfloat16'), right_DxK.astype('bfloat16'), preferred_element_type=jnp.float32)


def _forward(left_BxD: jax.Array, right_DxK: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _matmul_bfloat16(left_BxD, right_DxK), (left_BxD, right_DxK)


def _backward(factors: tuple[jax.Array, jax.Array], cotangent_BxK: jax.Array) -> tuple[jax.Array, jax.Array]:
    left_BxD, right_DxK = factors
    return _matmul_bfloat16(cotangent_BxK, right_DxK.T), _matmul_bfloat16(left_BxD.T, cotangent_BxK)


_matmul_bfloat16.defvjp(_forward, _backward)
