"""Defines the learning-rate schedules that `optimizer.schedule` selects.

References:
    A constant rate followed by a cooldown: Zhai et al., Scaling vision transformers, 2022; Hägele et al., Scaling laws
    and compute-optimal training beyond fixed training durations, 2024.
"""

import abc
import dataclasses
from typing import Annotated, Any, ClassVar

import optax

from nplm_jax.config.component import Component, in_range, key


@dataclasses.dataclass(frozen=True, kw_only=True)
class RateSchedule(Component, abc.ABC):
    """A learning-rate schedule, applied after warm-up.

    Attributes:
        is_constant: Whether the rate is constant.
    """

    is_constant: ClassVar[bool] = False

    @abc.abstractmethod
    def __call__(self, peak: Any, num_steps: int) -> optax.Schedule:
        """Returns the rate as a function of the number of updates since warm-up.

        Args:
            peak: The peak rate, a number or a traced scalar.
            num_steps: The number of updates after warm-up, 1 or more.
        """


class Constant(RateSchedule):
    """A constant rate."""

    is_constant = True

    def __call__(self, peak: Any, num_steps: int) -> optax.Schedule:
        """See `RateSchedule`."""
        return optax.constant_schedule(peak)


class Linear(RateSchedule):
    """Linear decay to zero over the whole run."""

    def __call__(self, peak: Any, num_steps: int) -> optax.Schedule:
        """See `RateSchedule`."""
        return optax.linear_schedule(peak, 0.0, num_steps)


class Cosine(RateSchedule):
    """Cosine decay to zero over the whole run."""

    def __call__(self, peak: Any, num_steps: int) -> optax.Schedule:
        """See `RateSchedule`."""
        return optax.cosine_decay_schedule(peak, num_steps)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trapezoid(RateSchedule):
    """A constant rate, followed by linear decay to zero (warmup-stable-decay, WSD)."""

    cooldown: Annotated[float, in_range('must be above 0 and at most 1', above=0, most=1)] = key(
        0.2, 'final fraction of the updates after warm-up, in which the learning rate decays to zero'
    )

    def __call__(self, peak: Any, num_steps: int) -> optax.Schedule:
        """See `RateSchedule`."""
        num_falling = max(round(self.cooldown * num_steps), 1)
        return optax.linear_schedule(peak, 0.0, num_falling, num_steps - num_falling)


def paper_schedule(epsilon_0: Any, r: Any, batch_size: int, step: Any) -> Any:
    """Computes batch_size * epsilon_t, where epsilon_t = epsilon_0 / (1 + r t) and t counts words (section 2.1).

    The factor batch_size converts the mean gradient of a batch to the sum of its gradients, which the paper multiplies
    by epsilon_t. With a batch size of 1, the update is the same as in the paper, except that the weight decay of many
    updates is applied at once.
    """
    return batch_size * epsilon_0 / (1 + r * step * batch_size)
