"""Uniform initialisation, dropout, and matrix products in lower precision."""

import functools
import pathlib
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp


class Keys(NamedTuple):
    """The random keys of an update.

    Attributes:
        shared: The key for what all streams share, such as a mask of weights.
        streams_S: The key of each stream. What is drawn for a stream depends on no other stream, so that results do
            not depend on how devices and microbatches divide the streams.
    """

    shared: jax.Array
    streams_S: jax.Array

    @classmethod
    def of_streams(cls, key: jax.Array, streams_S: jax.Array) -> 'Keys':
        """Returns the keys that an update's key gives its streams, by their numbers, int32."""
        shared, key = jax.random.split(key)
        return cls(shared, jax.vmap(jax.random.fold_in, (None, 0))(key, streams_S))

    def fold_in(self, number: int) -> 'Keys':
        """Returns other keys, independent of those of other numbers: `jax.random.fold_in` of each."""
        fold_in = jax.random.fold_in
        return Keys(fold_in(self.shared, number), jax.vmap(fold_in, (0, None))(self.streams_S, number))


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


def fold_in(keys: Keys | None, number: int) -> Keys | None:
    """Returns `Keys.fold_in`; None for None."""
    return None if keys is None else keys.fold_in(number)


def dropout(keys: Keys | None, values: jax.Array, rate: float, broadcast_dims: Sequence[int] = ()) -> jax.Array:
    """Zeroes a share `rate` of the values and scales up the rest; returns the values if `keys` is None or `rate` is 0.

    Args:
        keys: The keys of an update; None while scoring.
        values: An array with one row for each stream.
        rate: The probability that a value is zeroed.
        broadcast_dims: The axes along which a mask is repeated, as in `flax.linen.Dropout`: 1 of S x T x D for
            variational dropout (Gal and Ghahramani, 2016).

    Returns:
        Values of the same shape.
    """
    if keys is None or not rate:
        return values
    shape = tuple(1 if i in broadcast_dims else size for i, size in enumerate(values.shape))[1:]
    keep = jax.vmap(lambda key: jax.random.bernoulli(key, 1 - rate, shape))(keys.streams_S)
    return jnp.where(keep, values / (1 - rate), 0)


def drop_weights(key: jax.Array, weights: jax.Array, rate: float) -> jax.Array:
    """Zeroes a share `rate` of the weights, the same for all streams, and scales up the rest."""
    return jnp.where(jax.random.bernoulli(key, 1 - rate, weights.shape), weights / (1 - rate), 0)


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
