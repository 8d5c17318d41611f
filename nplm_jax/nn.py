"""Uniform initialisation, dropout, and matrix products in lower precision."""

import dataclasses
import functools
import math
import pathlib
import re
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32


@dataclasses.dataclass(frozen=True)
class Microbatch:
    """One of the microbatches of a batch, which are computed one after another, each divided over an axis of the mesh.

    Attributes:
        axis: The axis; None on one device.
        number: Its number, from 0 on, int32.
        num_microbatches: How many there are.
    """

    axis: str | tuple[str, ...] | None
    number: jax.Array
    num_microbatches: int


AxisName = str | tuple[str, ...] | Microbatch | None  # an axis of the device mesh, or several that act as one
Key = jax.Array | None  # a random key of a training update; None while scoring: no dropout, float32
Precision = Literal['float32', 'bfloat16', 'auto']  # `resolve_auto` replaces auto


def default_platform() -> str:
    """Returns the platform of this process's devices: `Device.platform` of JAX, such as `cpu`."""
    return jax.local_devices()[0].platform


@functools.cache
def native_precision(platform: str | None = None) -> Precision:
    """Returns what `auto` means on a platform; None for `default_platform`.

    It is bfloat16 on an accelerator and on a processor with instructions for it, where such products are 2 to 4 times
    as fast (experiments/speed); else float32.
    """
    if (platform or default_platform()) != 'cpu':
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


def dropout(
    key: Key, values: jax.Array, rate: float, axis: AxisName = None, broadcast_dims: Sequence[int] = ()
) -> jax.Array:
    """Zeroes a share `rate` of the values and scales up the rest; returns the values if `key` is None or `rate` is 0.

    Args:
        key: A random key, or None.
        values: An array; with `axis`, one row for each stream.
        rate: The probability that a value is zeroed.
        axis: The named axis over which the rows of the batch are divided, or the part of it. Every device and part then
            draws its own rows of the whole batch's mask, so that the same values are zeroed as without a division.
        broadcast_dims: The axes along which a mask is repeated, as in `flax.linen.Dropout`: 1 of S x T x D for
            variational dropout (Gal and Ghahramani, 2016).

    Returns:
        Values of the same shape.
    """
    if key is None or not rate:
        return values
    shape = [1 if i in broadcast_dims else size for i, size in enumerate(values.shape)]
    if axis is None:
        keep = jax.random.bernoulli(key, 1 - rate, shape)
    else:
        keep = _bernoulli_rows(key, 1 - rate, shape, *_share(axis))
    return jnp.where(keep, values / (1 - rate), 0)


def _bernoulli_rows(key: jax.Array, p: float, shape: Sequence[int], share: Any, num_shares: int) -> jax.Array:
    """Returns the rows of one share of `jax.random.bernoulli(key, p, (num_shares * shape[0], *shape[1:]))`.

    Only these are drawn: the random bits of an element are a hash of the key and the element's number, where
    `jax_threefry_partitionable` is set (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011).
    """
    size = math.prod(shape)
    assert size * num_shares <= 2**32, 'the number of an element has 32 bits'
    numbers = jnp.uint32(size) * jnp.uint32(share) + jnp.arange(size, dtype=jnp.uint32)
    counters = jnp.concatenate([jnp.zeros_like(numbers), numbers])  # the high bits, then the low bits
    bits = functools.reduce(jnp.bitwise_xor, jnp.split(threefry_2x32(jax.random.key_data(key), counters), 2))
    return ((bits >> 9).astype(jnp.float32) * 2**-23 < p).reshape(shape)  # 23 bits, as in jax.random.uniform


def _share(axis: AxisName) -> tuple[Any, int]:
    """Returns the number of this share of a batch, and the number of shares."""
    if isinstance(axis, Microbatch):
        share, num_shares = _share(axis.axis)
        return axis.number * num_shares + share, axis.num_microbatches * num_shares
    return (0, 1) if axis is None else (jax.lax.axis_index(axis), jax.lax.axis_size(axis))


def matmul(left_xD: jax.Array, right_DxK: jax.Array, precision: Precision = 'float32') -> jax.Array:
    """Returns the product of the last axis of an array and a matrix, float32, with K as the last axis.

    Args:
        left_xD: An array of any rank, float32, or bfloat16 where the precision is.
        right_DxK: The matrix, float32.
        precision: bfloat16 rounds the factors of this product and of its gradients; sums are float32. It is then
            differentiable once, in reverse mode.
    """
    assert precision != 'auto'
    left_BxD = left_xD.reshape(-1, left_xD.shape[-1])
    if precision == 'float32':
        y_BxK = left_BxD @ right_DxK
    else:
        y_BxK = _matmul_bfloat16(left_BxD.astype(jnp.float32), right_DxK)
    return y_BxK.reshape(*left_xD.shape[:-1], -1)


def product_precision(dtype: Any) -> jax.lax.Precision | None:
    """Returns what JAX takes as the precision of a product whose factors have this type.

    float32 has the precision in force, which `train_step` and `jit_float32` set to float32. bfloat16 has JAX's default:
    no factor is rounded, and a TPU would take several passes for float32's precision.
    """
    return None if dtype == jnp.float32 else jax.lax.Precision.DEFAULT


_product = functools.partial(jnp.dot, precision=product_precision('bfloat16'), preferred_element_type=jnp.float32)


@jax.custom_vjp
def _matmul_bfloat16(left_BxD: jax.Array, right_DxK: jax.Array) -> jax.Array:
    # custom_vjp: otherwise JAX promotes the gradient's bfloat16 factors to the cotangent's float32.
    return _forward(left_BxD, right_DxK)[0]


def _forward(left_BxD: jax.Array, right_DxK: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    factors = left_BxD.astype('bfloat16'), right_DxK.astype('bfloat16')
    return _product(*factors), factors  # kept as they are rounded, in half the memory


def _backward(factors: tuple[jax.Array, jax.Array], cotangent_BxK: jax.Array) -> tuple[jax.Array, jax.Array]:
    (left_BxD, right_DxK), rounded_BxK = factors, cotangent_BxK.astype('bfloat16')
    return _product(rounded_BxK, right_DxK.T), _product(left_BxD.T, rounded_BxK)


_matmul_bfloat16.defvjp(_forward, _backward)
