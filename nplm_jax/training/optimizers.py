"""Optimizers and learning-rate schedules: the paper's, and Optax's."""

import dataclasses
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, Self

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from nplm_jax.config import OptimizerSettings, Settings
from nplm_jax.utils import plugins
from nplm_jax.utils.errors import require

LearningRate = Callable[['Hyperparameters', Any], Any]  # (hyperparameters, step) -> rate


@flax.struct.dataclass
class Hyperparameters:
    """Traced arguments of the update: runs that differ only in them share one compiled program.

    Attributes:
        seed: Seeds initialisation, the order of the words and dropout, int32.
        learning_rate: Rate on the batch mean.
        weight_decay: Coefficient of R.
        epsilon_0: The paper's initial rate, per word.
        r: The paper's rate decay, per word.
        prior_strength: Coefficient of R_prior.
    """

    seed: Any
    learning_rate: Any
    weight_decay: Any
    epsilon_0: Any
    r: Any
    prior_strength: Any

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Returns the run's hyperparameters as scalar arrays, which jit traces."""
        optimizer = settings.optimizer
        rates = (optimizer.learning_rate, optimizer.weight_decay, optimizer.paper.epsilon_0, optimizer.paper.r)
        return cls(np.int32(settings.seed), *(np.float32(rate) for rate in (*rates, settings.prior.strength)))


def paper_schedule(hyperparameters: Hyperparameters, step: jax.Array, batch_size: int) -> jax.Array:
    """Computes epsilon_t = epsilon_0 / (1 + r t), t in words (the paper's section 2.1), times the batch.

    The gradient is a mean over the batch; times batch_size it is the sum, at the paper's rate per word. A batch of one
    is exactly the paper's update.
    """
    return batch_size * hyperparameters.epsilon_0 / (1 + hyperparameters.r * step * batch_size)


def learning_rate_schedule(settings: OptimizerSettings, total_steps: int, batch_size: int) -> LearningRate:
    """Returns the learning rate as a function (hyperparameters, step) -> rate.

    Args:
        settings: `optimizer.*`; its rates are read from the hyperparameters instead.
        total_steps: Number of updates of the whole run.
        batch_size: Words per update.
    """
    if settings.name == 'paper':
        return lambda hyperparameters, step: paper_schedule(hyperparameters, step, batch_size)
    warmup = settings.warmup
    num_after = max(total_steps - warmup, 1)

    def learning_rate(hyperparameters: Hyperparameters, step: jax.Array) -> jax.Array:
        peak = hyperparameters.learning_rate
        schedule = {
            'constant': lambda: optax.constant_schedule(peak),
            'linear': lambda: optax.linear_schedule(peak, 0.0, num_after),
            'cosine': lambda: optax.cosine_decay_schedule(peak, num_after),
        }[settings.schedule]()
        if warmup:
            schedule = optax.join_schedules([optax.linear_schedule(0.0, peak, warmup), schedule], [warmup])
        return schedule(step)

    return learning_rate


def make_optimizer(
    settings: OptimizerSettings, learning_rate: LearningRate, tables: Collection[str] = ()
) -> optax.GradientTransformationExtraArgs:
    """Returns the transformation `optimizer.name`; its `update` takes `hyperparameters` as an extra argument.

    Weight decay is not part of it.

    Args:
        settings: `optimizer.*`.
        learning_rate: The function (hyperparameters, step) -> rate.
        tables: The names of the parameters with one row per word.
    """
    direction = {
        settings.name: lambda: _plugin(settings),
        'paper': optax.identity,
        'sgd': lambda: optax.trace(settings.momentum) if settings.momentum else optax.identity(),
        'adam': optax.scale_by_adam,
        'rowwise_adam': lambda: scale_by_rowwise_adam(tables, settings.row_adaptivity),
        'adagrad': optax.scale_by_rss,
    }[settings.name]()
    optimizer = optax.chain(direction, _scale_by_learning_rate(learning_rate))
    clips = settings.clip_norm and settings.name != 'paper'
    return optax.chain(clip_by_global_norm(settings.clip_norm), optimizer) if clips else optimizer


def check_settings(settings: OptimizerSettings) -> None:
    """Raises BadInput for a plug-in that is no Optax factory."""
    if plugins.is_path(settings.name):
        _plugin(settings)


def _plugin(settings: OptimizerSettings) -> optax.GradientTransformationExtraArgs:
    """Returns the transformation that the factory of a plug-in makes, with the rate left to the schedule."""
    factory = plugins.load_function('optimizer.name', settings.name, 'learning_rate')
    made = factory(learning_rate=1.0, **dataclasses.asdict(settings.options))
    allowed = 'must return an optax.GradientTransformation'
    require(isinstance(made, optax.GradientTransformation), 'optimizer.name', settings.name, allowed)
    return optax.chain(made, optax.scale(-1.0))


class RowwiseAdamState(NamedTuple):
    """The state of `scale_by_rowwise_adam`.

    Attributes:
        count: The number of updates, int32.
        adam: The state of Adam, for the parameters that are not tables.
        nu: For each table the running mean of each row's mean squared gradient, float32, V.
    """

    count: jax.Array  # type: ignore[assignment]  # Optax's name for it; a tuple has a method of this name
    adam: optax.OptState
    nu: dict[str, jax.Array]


def scale_by_rowwise_adam(
    tables: Collection[str], adaptivity: float = 1.0, b2: float = 0.999, eps: float = 1e-8
) -> optax.GradientTransformationExtraArgs:
    """Divides each row of a table by the root of one second moment, without momentum; all else is Adam.

    The divisor is nu_row^(p/2) nu_mean^((1-p)/2) with p = `adaptivity`, where nu_mean is the mean over the rows that
    have had a gradient. With p = 1 the rows of rare words move as far in an update as those of frequent words; with
    p = 0 all rows have one rate, as in gradient descent.

    A row without a gradient does not change, so that an update need not touch it. Where `rows` is given, the gradients
    of a table are those of the rows `rows[name]` alone, R x D. These row numbers are distinct, except that V stands for
    no row.

    Args:
        tables: The names of the parameters with one row per word.
        adaptivity: p, from 0 to 1.
        b2: The decay of the second moments.
        eps: Added to the root.

    References:
        Kingma and Ba, Adam, ICLR 2015. One second moment a row: Naumov et al., Deep learning recommendation model for
        personalization and recommendation systems, 2019.
        A smaller power of the second moment: Chen et al., Closing the generalization gap of adaptive gradient methods
        in training deep neural networks (Padam), IJCAI 2020.
    """
    adam = optax.scale_by_adam(b2=b2, eps=eps)

    def others(tree: Any) -> Any:
        return {name: leaf for name, leaf in tree.items() if name not in tables}

    def init(params: Any) -> RowwiseAdamState:
        nu = {name: jnp.zeros(len(params[name])) for name in params if name in tables}
        return RowwiseAdamState(jnp.zeros([], jnp.int32), adam.init(others(params)), nu)

    def update(
        updates: Any, state: RowwiseAdamState, params: Any = None, *, rows: Any = None, **_: Any
    ) -> tuple[Any, RowwiseAdamState]:
        scaled, adam_state = adam.update(others(updates), state.adam)
        count = optax.safe_increment(state.count)
        correction = 1 - b2**count
        nu = {}
        for name, old_V in state.nu.items():
            g_RxD = updates[name]
            squares_R = (1 - b2) * jnp.mean(jnp.square(g_RxD.reshape(len(g_RxD), -1)), axis=1)
            index_R = slice(None) if rows is None else rows[name]
            nu[name] = (b2 * old_V).at[index_R].add(squares_R, mode='drop')
            nu_R = nu[name].at[index_R].get(mode='fill', fill_value=1)
            if adaptivity < 1:
                mean = jnp.sum(nu[name]) / jnp.maximum(jnp.count_nonzero(nu[name]), 1)  # padding rows never have one
                nu_R = nu_R**adaptivity * mean ** (1 - adaptivity)
            denominator_R = jnp.sqrt(nu_R / correction) + eps
            scaled[name] = g_RxD / denominator_R.reshape(-1, *[1] * (g_RxD.ndim - 1))
        return scaled, RowwiseAdamState(count, adam_state, nu)

    return optax.GradientTransformationExtraArgs(init, update)


def clip_by_global_norm(max_norm: float) -> optax.GradientTransformation:
    """Returns `optax.clip_by_global_norm`, except where the sum of squares overflows float32.

    That sum is infinite from a norm of 1.8e19 on, and Optax then makes the update zero without a word. Such a gradient
    is divided by its largest element first. One that is not finite gives an update that is not finite, which stops
    the run.

    Args:
        max_norm: The largest norm of all gradients together.
    """
    clip = optax.clip_by_global_norm(max_norm)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        def divide(grads: Any) -> Any:
            largest = jnp.max(jnp.stack([jnp.max(jnp.abs(g)) for g in jax.tree.leaves(grads)]))
            return jax.tree.map(lambda g: g / largest.astype(g.dtype) * max_norm, grads)  # a norm of max_norm or more

        overflows = jnp.isinf(optax.tree.norm(updates))
        return clip.update(jax.lax.cond(overflows, divide, lambda grads: grads, updates), state, params)

    return optax.GradientTransformation(clip.init, update)


def _scale_by_learning_rate(learning_rate: LearningRate) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by the negative learning rate; counts the updates in its state as Optax does."""

    def init(params: Any) -> optax.ScaleByScheduleState:
        return optax.ScaleByScheduleState(count=jnp.zeros([], jnp.int32))

    def update(
        updates: Any, state: Any, params: Any = None, *, hyperparameters: Hyperparameters, **_: Any
    ) -> tuple[Any, optax.ScaleByScheduleState]:
        step_size = -learning_rate(hyperparameters, state.count)
        updates = jax.tree.map(lambda g: jnp.array(step_size, dtype=g.dtype) * g, updates)
        return updates, optax.ScaleByScheduleState(count=optax.safe_increment(state.count))

    return optax.GradientTransformationExtraArgs(init, update)
