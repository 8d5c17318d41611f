"""Optax transformations: weight decay, the learning rate, one second moment per row, and clipping."""

import types
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


def add_weight_decay(decay: Any) -> optax.GradientTransformationExtraArgs:
    """Adds the gradient of R(theta) = decay/2 * the sum of the squares of all weights (C, H, U, W), not of the biases.

    Tables in `rows` are left out: `Optimizer.table_factor` is their decay.

    Args:
        decay: The coefficient.
    """

    def update(updates: Any, state: Any, params: Any, *, rows: Any = (), **_: Any) -> tuple[Any, Any]:
        def add(g: jax.Array, weight: jax.Array) -> jax.Array:
            return decay * weight + g if weight.ndim > 1 else g

        return {name: g if name in rows else jax.tree.map(add, g, params[name]) for name, g in updates.items()}, state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)


def scale_by_learning_rate(
    schedule: optax.Schedule, multiples: Mapping[str, float] = types.MappingProxyType({})
) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by the negative learning rate of update `step`, those of some parameters by a multiple of it.

    Args:
        schedule: The function step -> rate.
        multiples: The multiple of each such parameter, by name.
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
        nu: For each table the running mean of each row's mean squared gradient, float32, V.
    """

    count: jax.Array  # type: ignore[assignment]  # Optax's name for it; a tuple has a method of this name
    nu: Any


def scale_by_row_moment(
    adaptivity: float = 1.0, b2: float = 0.999, eps: float = 1e-8
) -> optax.GradientTransformationExtraArgs:
    """Divides each row of a table by the root of one second moment, without momentum.

    The divisor is nu_row^(p/2) nu_mean^((1-p)/2) with p = `adaptivity`, where nu_mean is the mean over the rows that
    have had a gradient. With p = 1 the rows of rare words move as far in an update as those of frequent words; with
    p = 0 all rows have one rate, as in gradient descent.

    A row without a gradient does not change, so that an update need not touch it. Where `rows` is given, the gradients
    of each table in it are those of the rows `rows[name]` alone, R x D. These row numbers are distinct, except that V
    stands for no row.

    Args:
        adaptivity: p, from 0 to 1.
        b2: The decay of the second moments.
        eps: Added to the root.

    References:
        Kingma and Ba, Adam, ICLR 2015. One second moment a row: Naumov et al., Deep learning recommendation model for
        personalization and recommendation systems, 2019.
        A smaller power of the second moment: Chen et al., Closing the generalization gap of adaptive gradient methods
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
    """Returns `optax.clip_by_global_norm`, as one multiplication that XLA can fuse into the update.

    A norm that is not finite makes the update not finite, which stops the run: Optax would make it zero without a
    word where the sum of squares overflows float32, from a norm of 1.8e19 on.

    Args:
        max_norm: The largest norm of all gradients together.
    """

    def update(updates: Any, state: optax.EmptyState, params: Any = None) -> tuple[Any, optax.EmptyState]:
        # A branch of `jax.lax.cond` would take arrays in the default layout: XLA would transpose those of U and W.
        norm = optax.tree.norm(updates)
        factor = jnp.where(jnp.isfinite(norm), jnp.minimum(1.0, max_norm / norm), jnp.nan)
        return jax.tree.map(lambda g: g * factor.astype(g.dtype), updates), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)
