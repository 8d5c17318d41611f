"""Optimizers and learning-rate schedules: the paper's, and Optax's."""

from collections.abc import Callable
from typing import Any, Self

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from nplm_jax.config import OptimizerSettings, Settings

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


def make_optimizer(settings: OptimizerSettings, learning_rate: LearningRate) -> optax.GradientTransformationExtraArgs:
    """Returns the transformation `optimizer.name`; its `update` takes `hyperparameters` as an extra argument.

    Weight decay is in the objective, not here.
    """
    direction = {
        'paper': optax.identity,
        'sgd': lambda: optax.trace(settings.momentum) if settings.momentum else optax.identity(),
        'adam': optax.scale_by_adam,
        'adagrad': optax.scale_by_rss,
    }[settings.name]()
    optimizer = optax.chain(direction, _scale_by_learning_rate(learning_rate))
    clips = settings.clip_norm and settings.name != 'paper'
    return optax.chain(clip_by_global_norm(settings.clip_norm), optimizer) if clips else optimizer


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
