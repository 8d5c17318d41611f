"""Optax transformations for weight decay, learning rates, row-wise second moments, and clipping.

Each parameter has a label: TABLES (one row per word or class: C, U, W, b), HIDDEN (other matrices) or VECTORS (other
vectors).
"""

import types
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

HIDDEN, TABLES, VECTORS = ('hidden', 'tables', 'vectors')


def add_weight_decay(decay: Any) -> optax.GradientTransformationExtraArgs:
    """Adds the gradient of R(theta) = decay/2 * the sum of the squared weights (C, H, U, W). Biases are excluded.

    Tables in `rows` are skipped; `Optimizer.table_factor` gives their decay.

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
    """Multiplies updates by the negative learning rate at `step`, rescaled for the parameters in `multiples`.

    Args:
        schedule: A function from the step to the rate.
        multiples: Parameter name -> multiple; 1 for other parameters.
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
        nu: The running mean of the mean squared gradient of each row, by table, float32, V.
    """

    count: jax.Array  # type: ignore[assignment]  # Optax's name; shadows a method of tuple
    nu: Any


def scale_by_row_moment(
    adaptivity: float = 1.0, b2: float = 0.999, eps: float = 1e-8
) -> optax.GradientTransformationExtraArgs:
    """Divides each row of a table by the root of the row's second moment, without momentum.

    The divisor is nu_row^(p/2) nu_mean^((1-p)/2) with p = `adaptivity`, where nu_mean is the mean over all rows that
    have ever had a gradient. With p = 1, a row with a gradient in a share f of the updates moves in proportion to
    1 / sqrt(f) in each of them. With p = 0, all rows have the same rate, as in gradient descent.

    Rows without a gradient do not change and need not be touched. If the argument `rows` of `update` is given, the
    gradient of each table in it is R x D and covers only the rows `rows[name]`. These indices must be distinct, except
    for the invalid index V, which is ignored.

    Args:
        adaptivity: p, from 0 to 1.
        b2: The decay of the second moments.
        eps: A constant that is added to the root.

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
    """Implements `optax.clip_by_global_norm` as a single multiplication, which XLA can fuse into the update.

    A non-finite norm gives a non-finite update, which stops the run. For norms above 1.8e19, whose squares overflow
    float32, Optax would silently return a zero update.

    Args:
        max_norm: The maximum global norm.
    """

    def update(updates: Any, state: optax.EmptyState, params: Any = None) -> tuple[Any, optax.EmptyState]:
        # Do not use `jax.lax.cond`. Its branches take arrays in the default layout, so XLA would transpose U and W.
        norm = optax.tree.norm(updates)
        factor = jnp.where(jnp.isfinite(norm), jnp.minimum(1.0, max_norm / norm), jnp.nan)
        return jax.tree.map(lambda g: g * factor.astype(g.dtype), updates), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def label_parameters(params: Mapping[str, Any], tables: Collection[str]) -> dict[str, Any]:
    """Returns the label of each parameter, in the structure of the parameters."""

    def label(leaf: Any) -> str:
        return HIDDEN if jnp.ndim(leaf) > 1 else VECTORS

    return {name: TABLES if name in tables else jax.tree.map(label, value) for name, value in params.items()}
