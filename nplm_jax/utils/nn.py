"""Uniform initialisation, dropout, and matrix products in lower precision."""

import dataclasses
import functools
import pathlib
import re
from typing import Any, Literal

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True)
class Part:
    """One of the equal parts of a batch that are computed one after another, each divided over an axis of the mesh.

    Attributes:
        axis: The axis; None on one device.
        number: The number of the part, from 0 on, int32.
        num_parts: Number of parts.
    """

    axis: str | tuple[str, ...] | None
    number: jax.Array
    num_parts: int


AxisName = str | tuple[str, ...] | Part | None  # an axis of the device mesh, or several that act as one
Key = jax.Array | None  # a random key; None switches dropout off
Precision = Literal['float32', 'bfloat16', 'auto']  # `Network.make` resolves auto


@functools.cache
def native_precision() -> Precision:
    """Returns what `auto` means here.

    It is bfloat16 on an accelerator and on a processor with instructions for it, where such products are 2 to 4 times
    as fast (experiments/speed); else float32.
    """
    if jax.default_backend() != 'cpu':
        return 'bfloat16'
    processor = pathlib.Path('/proc/cpuinfo')  # of Linux
    has_bfloat16 = processor.exists() and re.search('amx_bf16|avx512_bf16', processor.read_text())
    return 'bfloat16' if has_bfloat16 else 'float32'


def uniform(key: jax.Array, shape: tuple[int, ...], bound: float) -> jax.Array:
    """Returns float32 numbers drawn evenly from [-bound, bound)."""
    return jax.random.uniform(key, shape, jnp.float32, -bound, bound)


def fold_in(key: Key, number: int) -> Key:
    """Returns `jax.random.fold_in(key, number)`; None for None."""
    return None if key is None else jax.random.fold_in(key, number)


def dropout(key: Key, values_BxD: jax.Array, rate: float, axis: AxisName = None, rows_per_mask: int = 1) -> jax.Array:
    """Zeroes a share `rate` of the values and scales up the rest; returns the values if `key` is None or `rate` is 0.

    Args:
        key: A random key, or None.
        values_BxD: The values, one row per example.
        rate: The probability that a value is zeroed.
        axis: The named axis over which the batch is divided, or the part of it. Every device and part then draws the
            mask of the whole batch and takes its own rows, so that the same values are zeroed as without a division.
        rows_per_mask: Number of consecutive rows that share a mask: the words of a stream, for variational dropout (Gal
            and Ghahramani, 2016).

    Returns:
        Values of the same shape.
    """
    if key is None or not rate:
        return values_BxD
    B, D = values_BxD.shape
    num_masks = B // rows_per_mask
    if axis is None:
        keep = jax.random.bernoulli(key, 1 - rate, (num_masks, D))
    else:
        share, num_shares = _share(axis)
        batch_keep = jax.random.bernoulli(key, 1 - rate, (num_masks * num_shares, D))
        keep = jax.lax.dynamic_slice_in_dim(batch_keep, num_masks * share, num_masks)
    keep_BxD = keep if rows_per_mask == 1 else jnp.repeat(keep, rows_per_mask, axis=0)
    return jnp.where(keep_BxD, values_BxD / (1 - rate), 0)


def _share(axis: AxisName) -> tuple[Any, int]:
    """Returns the number of this share of a batch, and the number of shares."""
    if isinstance(axis, Part):
        share, num_shares = _share(axis.axis)
        return axis.number * num_shares + share, axis.num_parts * num_shares
    return (0, 1) if axis is None else (jax.lax.axis_index(axis), jax.lax.axis_size(axis))


def matmul(left_BxD: jax.Array, right_DxK: jax.Array, precision: Precision) -> jax.Array:
    """Returns the product of two float32 matrices, float32, B x K.

    Args:
        left_BxD: The left matrix.
        right_DxK: The right matrix.
        precision: bfloat16 rounds the factors of this product and of its gradients; sums are float32. It is then
            differentiable once, in reverse mode.
    """
    assert precision != 'auto'
    return left_BxD @ right_DxK if precision == 'float32' else _matmul_bfloat16(left_BxD, right_DxK)


@jax.custom_vjp
def _matmul_bfloat16(left_BxD: jax.Array, right_DxK: jax.Array) -> jax.Array:
    # custom_vjp: otherwise JAX promotes the gradient's bfloat16 factors to the cotangent's float32.
    return jnp.dot(left_BxD.astype('bfloat16'), right_DxK.astype('bfloat16'), preferred_element_type=jnp.float32)


def _forward(left_BxD: jax.Array, right_DxK: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _matmul_bfloat16(left_BxD, right_DxK), (left_BxD, right_DxK)


def _backward(factors: tuple[jax.Array, jax.Array], cotangent_BxK: jax.Array) -> tuple[jax.Array, jax.Array]:
    left_BxD, right_DxK = factors
    return _matmul_bfloat16(cotangent_BxK, right_DxK.T), _matmul_bfloat16(left_BxD.T, cotangent_BxK)


_matmul_bfloat16.defvjp(_forward, _backward)
