"""Numerical functions for networks: random keys, initialization, dropout and mixed-precision matrix products."""

import functools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp


class Keys(NamedTuple):
    """The random keys of one update.

    Attributes:
        shared: The key for random numbers that all streams share, such as a dropout mask over weights.
        streams_S: One key per stream. The random numbers of a stream depend only on the key of that stream. Results
            therefore do not depend on how streams are divided over devices and microbatches.
    """

    shared: jax.Array
    streams_S: jax.Array

    @classmethod
    def of_streams(cls, key: jax.Array, streams_S: jax.Array) -> 'Keys':
        """Derives the keys of an update from a single key and the int32 indices of the streams."""
        shared, key = jax.random.split(key)
        return cls(shared, jax.vmap(jax.random.fold_in, (None, 0))(key, streams_S))

    def fold_in(self, number: int) -> 'Keys':
        """Folds a number into every key with `jax.random.fold_in`. Different numbers give independent keys."""
        fold_in = jax.random.fold_in
        return Keys(fold_in(self.shared, number), jax.vmap(fold_in, (0, None))(self.streams_S, number))


Precision = Literal['float32', 'bfloat16', 'auto']  # `resolve_auto` replaces `auto` with one of the other two


def default_platform() -> str:
    """Returns the platform of this process's devices (`jax.Device.platform`), such as `cpu`."""
    return jax.local_devices()[0].platform


def uniform(key: jax.Array, shape: tuple[int, ...], bound: float) -> jax.Array:
    """Returns float32 samples from the uniform distribution over [-bound, bound)."""
    return jax.random.uniform(key, shape, jnp.float32, -bound, bound)


def fold_in(keys: Keys | None, number: int) -> Keys | None:
    """Applies `Keys.fold_in`; returns None if `keys` is None."""
    return None if keys is None else keys.fold_in(number)


def dropout(keys: Keys | None, values: jax.Array, rate: float, broadcast_dims: Sequence[int] = ()) -> jax.Array:
    """Sets each value to zero with probability `rate`, and multiplies the remaining values by 1 / (1 - rate).

    Args:
        keys: The random keys of the update. If None, as in scoring, the values are returned unchanged.
        values: An array with one row per stream.
        rate: The probability of zeroing a value.
        broadcast_dims: The axes that share one mask, as in `flax.linen.Dropout`. Axis 1 of S x T x D gives variational
            dropout (Gal and Ghahramani, 2016).

    Returns:
        An array of the same shape.
    """
    if keys is None or not rate:
        return values
    shape = tuple(1 if i in broadcast_dims else size for i, size in enumerate(values.shape))[1:]
    keep = jax.vmap(lambda key: jax.random.bernoulli(key, 1 - rate, shape))(keys.streams_S)
    return jnp.where(keep, values / (1 - rate), 0)


def drop_weights(key: jax.Array, weights: jax.Array, rate: float) -> jax.Array:
    """Sets each weight to zero with probability `rate`, and multiplies the other weights by 1 / (1 - rate).

    All streams share the dropout mask.
    """
    return jnp.where(jax.random.bernoulli(key, 1 - rate, weights.shape), weights / (1 - rate), 0)


def matmul(left_xD: jax.Array, right_DxK: jax.Array, precision: Precision = 'float32') -> jax.Array:
    """Multiplies the last axis of an array by a matrix.

    Args:
        left_xD: An array of any rank, float32. It may also be bfloat16 if `precision` is bfloat16.
        right_DxK: The matrix, float32.
        precision: If bfloat16, the factors of the product and of its gradients are rounded to bfloat16, and sums are
            accumulated in float32. A bfloat16 product supports only first derivatives in reverse mode.

    Returns:
        The product, float32, with K as its last axis.
    """
    assert precision != 'auto'
    left_BxD = left_xD.reshape(-1, left_xD.shape[-1])
    if precision == 'float32':
        y_BxK = left_BxD @ right_DxK
    else:
        y_BxK = _matmul_bfloat16(left_BxD.astype(jnp.float32), right_DxK)
    return y_BxK.reshape(*left_xD.shape[:-1], -1)


def product_precision(dtype: Any) -> jax.lax.Precision | None:
    """Returns the `precision` argument of a JAX matrix product whose factors have this dtype.

    Products of float32 factors use the ambient matmul precision, which `train_step` and `jit_float32` set to float32.
    Products of bfloat16 factors use JAX's default precision, because the factors are already rounded and float32
    precision would take several passes on a TPU.
    """
    return None if dtype == jnp.float32 else jax.lax.Precision.DEFAULT


_product = functools.partial(jnp.dot, precision=product_precision('bfloat16'), preferred_element_type=jnp.float32)


@jax.custom_vjp
def _matmul_bfloat16(left_BxD: jax.Array, right_DxK: jax.Array) -> jax.Array:
    # Without custom_vjp, JAX promotes the bfloat16 factors of the gradient to float32, the dtype of the cotangent.
    return _forward(left_BxD, right_DxK)[0]


def _forward(left_BxD: jax.Array, right_DxK: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    factors = left_BxD.astype('bfloat16'), right_DxK.astype('bfloat16')
    return _product(*factors), factors  # saved in bfloat16 for the backward pass, at half the memory


def _backward(factors: tuple[jax.Array, jax.Array], cotangent_BxK: jax.Array) -> tuple[jax.Array, jax.Array]:
    (left_BxD, right_DxK), rounded_BxK = factors, cotangent_BxK.astype('bfloat16')
    return _product(rounded_BxK, right_DxK.T), _product(left_BxD.T, rounded_BxK)


_matmul_bfloat16.defvjp(_forward, _backward)
