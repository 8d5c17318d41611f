"""Implements Optax transformations for weight decay, learning rates, row-wise second moments and gradient clipping.

Each parameter has one of three labels: TABLES for parameters with one row per word or class, such as C, U, W and b;
HIDDEN for all other matrices; and VECTORS for all other vectors.
"""

import types
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

HIDDEN, TABLES, VECTORS = ('hidden', 'tables', 'vectors')


def add_weight_decay(decay: Any) -> optax.GradientTransformationExtraArgs:
    """Adds the gradient of the weight decay R(theta) = decay/2 * the sum of the squared weights in all matrices.

    Vectors such as biases have no weight decay. Tables that are named in the argument `rows` of `update` are skipped;
    `Optimizer.table_factor` gives their decay.

    Args:
        decay: The coefficient of R(theta).
    """

    def update(updates: Any, state: Any, params: Any, *, rows: Any = (), **_: Any) -> tuple[Any, Any]:
        def add(g: jax.Array, weight: jax.Array) -> jax.Array:
            return decay * weight + g if weight.ndim > 1 else g

        return {name: g if name in rows else jax.tree.map(add, g, params[name]) for name, g in updates.items()}, state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def scale_by_learning_rate(
    schedule: optax.Schedule, multiples: Mapping[str, float] = types.MappingProxyType({})
) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by the negative learning rate, which may differ between parameters by a constant factor.

    Args:
        schedule: The learning rate as a function of the argument `step` of `update`.
        multiples: For some parameters, the factor that multiplies their learning rate, by parameter name. The factor of
            all other parameters is 1.
    """

    def update(updates: Any, state: Any, params: Any = None, *, step: jax.Array, **_: Any) -> tuple[Any, Any]:
        step_size = -schedule(step)

        def scale(name: str) -> Any:
            return jax.tree.map(lambda g: jnp.asarray(step_size * multiples.get(name, 1.0), g.dtype) * g, updates[name])

        return {name: scale(name) for name in updates}, state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


class RowMomentState(NamedTuple):
    """The state of `scale_by_row_moment`.

    Attributes:
        count: The number of updates, int32.
        nu: For each table, the running mean of the mean squared gradient of each row, float32, V.
    """

    count: jax.Array  # type: ignore[assignment]  # Optax's name; shadows a method of tuple
    nu: Any


def scale_by_row_moment(
    adaptivity: float = 1.0, b2: float = 0.999, eps: float = 1e-8
) -> optax.GradientTransformationExtraArgs:
    """Divides each row of a table by the root of the row's second moment, without momentum.

    The divisor is nu_row^(p/2) nu_mean^((1-p)/2) with p = `adaptivity`, where nu_row is the second moment of the row,
    and nu_mean is the mean over all rows that have ever had a gradient. With p = 1, a row that has a gradient in a
    fraction f of the updates changes in proportion to 1 / sqrt(f) in each of these updates. With p = 0, all rows have
    the same rate, as in gradient descent.

    Rows without a gradient do not change. If the argument `rows` of `update` contains a table, the gradient of this
    table is R x D and covers only the rows with the indices `rows[name]`. These indices must be distinct, except for
    the invalid index V, which is ignored.

    Args:
        adaptivity: The exponent p, from 0 to 1.
        b2: The exponential decay rate of the second moments.
        eps: A small constant that is added to the root to avoid division by zero.

    References:
        Kingma and Ba, Adam, ICLR 2015. Row-wise second moments: Naumov et al., Deep learning recommendation model for
        personalization and recommendation systems, 2019.
        Smaller powers of the second moment: Chen et al., Closing the generalization gap of adaptive gradient methods
        in training deep neural networks (Padam), IJCAI 2020.
    """

    def init(params: Any) -> RowMomentState:
        return RowMomentState(jnp.zeros([], jnp.int32), jax.tree.map(lambda table: jnp.zeros(len(table)), params))

    def update(
        updates: Any, state: RowMomentState, params: Any = None, *, rows: Any = None, **_: Any
    ) -> tuple[Any, RowMomentState]:
        count = optax.safe_increment(state.count)
        correction = 1 - b2**count

        def index(path: Any) -> Any:
            return (rows or {}).get(path[0].key, slice(None))

        def new_nu(path: Any, g_RxD: jax.Array, old_V: jax.Array) -> jax.Array:
            squares_R = (1 - b2) * jnp.mean(jnp.square(g_RxD.reshape(len(g_RxD), -1)), axis=1)
            return (b2 * old_V).at[index(path)].add(squares_R, mode='drop')

        def scale(path: Any, g_RxD: jax.Array, nu_V: jax.Array) -> jax.Array:
            nu_R = nu_V.at[index(path)].get(mode='fill', fill_value=1)
            if adaptivity < 1:
                count = jnp.sum(nu_V != 0, dtype=nu_V.dtype)  # padding rows never have a gradient
                mean = jnp.sum(nu_V) / jnp.maximum(count, 1)
                nu_R = nu_R**adaptivity * mean ** (1 - adaptivity)
            denominator_R = jnp.sqrt(nu_R / correction) + eps
            return g_RxD / denominator_R.reshape(-1, *[1] * (g_RxD.ndim - 1))

        nu = jax.tree.map_with_path(new_nu, updates, state.nu)
        return jax.tree.map_with_path(scale, updates, nu), RowMomentState(count, nu)

    return optax.GradientTransformationExtraArgs(init, update)


def clip_by_global_norm(max_norm: float) -> optax.GradientTransformation:
    """Limits the global norm of the updates by a single multiplication, which XLA can fuse into the update.

    The result is the same as that of `optax.clip_by_global_norm`, except for norms above 1.8e19, whose squares overflow
    float32. For these, Optax would silently return a zero update. This function returns a non-finite update, which
    stops the run.

    Args:
        max_norm: The maximum global norm, above 0.
    """

    def update(updates: Any, state: optax.EmptyState, params: Any = None) -> tuple[Any, optax.EmptyState]:
        # Do not use `jax.lax.cond`. Its branches require arrays in the default memory layout, so XLA would transpose U
        # and W in every update.
        norm = optax.tree.norm(updates)
        factor = jnp.where(jnp.isfinite(norm), jnp.minimum(1.0, max_norm / norm), jnp.nan)
        return jax.tree.map(lambda g: g * factor.astype(g.dtype), updates), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def label_parameters(params: Mapping[str, Any], tables: Collection[str]) -> dict[str, Any]:
    """Returns a tree that is structured like the parameters and contains the label of each parameter."""

    def label(leaf: Any) -> str:
        return HIDDEN if jnp.ndim(leaf) > 1 else VECTORS

    return {name: TABLES if name in tables else jax.tree.map(label, value) for name, value in params.items()}
