"""Optimizers: an update rule for each kind of parameter, in one Optax chain with weight decay, clipping and the rate.

Parameters have labels: TABLES have a row per word or class (C, U, W, b), HIDDEN are other matrices, VECTORS the rest.
"""

import abc
import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from nplm_jax.config.component import Component, CountOrZero, NonNegative, Positive, between, chosen, key
from nplm_jax.training import transformations
from nplm_jax.training.rate_schedules import RateSchedule

Hyperparameters = dict[str, Any]  # scalar arrays by these keys
LearningRate = Callable[[Hyperparameters, Any], Any]  # (hyperparameters, step) -> rate
Transformation: TypeAlias = optax.GradientTransformation
HIDDEN, TABLES, VECTORS = ('hidden', 'tables', 'vectors')


class Rule(Component, abc.ABC):
    """An optimizer's update rule, its rate and its weight decay. Subclasses are frozen dataclasses.

    Attributes:
        sums_rows: Whether it needs the sum of the gradients of a row that occurs several times.
        decouples_decay: Whether weight decay follows the rule, as in AdamW, and is not a part of the gradients.
        updates_rows: Whether the rows of a table without a gradient stay as they are, so that a sparse loss updates few
            rows. The state of a row must then be one number or nothing, and a rule must know `rows`: see
            `scale_by_row_moment`.
        decay: The coefficient of R(theta).
        warmup: The number of updates of linear warm-up.
        table_rate: The rate of the tables, as a multiple of the learning rate.
        clip_norm: The largest norm of all gradients together; 0 for no limit.
    """

    sums_rows: ClassVar[bool] = False
    decouples_decay: ClassVar[bool] = False
    updates_rows: ClassVar[Any] = False  # a bool, or a property
    decay: float
    warmup: int = 0
    table_rate: float = 1.0
    clip_norm: float = 0.0

    @abc.abstractmethod
    def make(self) -> Transformation | dict[str, Transformation]:
        """Returns one Optax transformation for all parameters, or one for each label.

        `chain` multiplies the updates by the negative rate.
        """

    @abc.abstractmethod
    def make_learning_rate(self, total_steps: int, batch_size: int) -> LearningRate:
        """Returns the learning rate as a function (hyperparameters, step) -> rate.

        Args:
            total_steps: Number of updates of the whole run.
            batch_size: Words per update.
        """

    @abc.abstractmethod
    def peak_table_rate(self, batch_size: int) -> float:
        """Returns the largest rate of the tables."""

    def clip(self) -> list[Transformation]:
        """Returns the clipping of the gradients; nothing without a limit."""
        return [transformations.clip_by_global_norm(self.clip_norm)] if self.clip_norm else []

    def chain(
        self,
        schedule: optax.Schedule,
        is_constant: bool,
        decay: Any,
        tables: tuple[str, ...],
        rows_are_outputs: tuple[str, ...],
    ) -> optax.GradientTransformationExtraArgs:
        """Returns the whole update as one Optax chain: weight decay, clipping, `make`'s transformation and the rate.

        Args:
            schedule: The function step -> rate.
            is_constant: Whether the rate is the same in every update.
            decay: The coefficient of R(theta).
            tables: The names of the parameters whose rows are updated as a table's.
            rows_are_outputs: The names of the matrices that are (out, in): `Tables.units`.
        """
        direction, decay_link = self.make(), transformations.add_weight_decay(decay)
        if isinstance(direction, dict):
            direction = optax.partition(direction, functools.partial(label_parameters, tables=tables))
        clip = self.clip()
        directions = [*clip, direction, decay_link] if self.decouples_decay else [decay_link, *clip, direction]
        rate = transformations.scale_by_learning_rate(schedule, dict.fromkeys(tables, self.table_rate))
        return optax.chain(*directions, rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduledRule(Rule):
    """A rule whose rate follows `optimizer.schedule`; the gradient is the mean over a batch."""

    learning_rate: Positive = key(2.0, 'peak rate; a batch half as large needs a rate half as large')
    schedule: RateSchedule = chosen('optimizer.schedule')
    warmup: CountOrZero = key(0, 'number of updates of linear warm-up')
    table_rate: Positive = key(1.0, 'the rate of C, U, W and b, as a multiple of learning_rate')
    clip_norm: NonNegative = key(0.0, 'largest norm of all gradients together; 0: no limit')
    decay: NonNegative = key(
        1e-5,
        'R(theta) = decay/2 |theta|^2 over C, H, U, W. With rowwise_adam and import paths it is '
        'decoupled, as in AdamW: each update multiplies these weights by 1 - rate * decay',
    )

    def make_learning_rate(self, total_steps: int, batch_size: int) -> LearningRate:
        """See `Rule.make_learning_rate`."""
        warmup, num_after = self.warmup, max(total_steps - self.warmup, 1)

        def learning_rate(hyperparameters: Hyperparameters, step: jax.Array) -> jax.Array:
            peak = hyperparameters['optimizer.learning_rate']
            schedule = self.schedule(peak, num_after)
            if warmup:
                schedule = optax.join_schedules([optax.linear_schedule(0.0, peak, warmup), schedule], [warmup])
            return schedule(step)

        return learning_rate

    def peak_table_rate(self, batch_size: int) -> float:
        """See `Rule.peak_table_rate`."""
        return self.table_rate * self.learning_rate


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientDescent(ScheduledRule):
    """Gradient descent."""

    @property
    def updates_rows(self) -> bool:
        """See `Rule.updates_rows`."""
        return not self.clip_norm

    def make(self) -> Transformation:
        """See `Rule.make`."""
        return optax.identity()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adam(ScheduledRule):
    """Adam (Kingma and Ba, 2015)."""

    learning_rate: Positive = key(0.003, 'peak rate')

    def make(self) -> Transformation:
        """See `Rule.make`."""
        return optax.scale_by_adam()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adagrad(ScheduledRule):
    """AdaGrad (Duchi et al., 2011)."""

    learning_rate: Positive = key(0.05, 'peak rate')

    def make(self) -> Transformation:
        """See `Rule.make`."""
        return optax.scale_by_rss()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowwiseAdam(ScheduledRule):
    """Adam, but each row of C, U, W and b has one second moment and no momentum.

    So an update touches few rows unless `output.kind` is full; see `scale_by_row_moment`.
    """

    learning_rate: Positive = key(0.003, 'peak rate')
    table_rate: Positive = key(2.0, 'rate of C, U, W and b, as a multiple of learning_rate')
    row_adaptivity: Annotated[float, between(0, 1)] = key(
        1.0,
        '1: each row has its own second moment; 0: all rows of a '
        'parameter share one; between: a geometric mean of both. Below 1 the rows of rare words move less',
    )
    updates_rows = True
    sums_rows = True
    decouples_decay = True

    def make(self) -> dict[str, Transformation]:
        """See `Rule.make`."""
        others = optax.scale_by_adam()
        return {HIDDEN: others, TABLES: transformations.scale_by_row_moment(self.row_adaptivity), VECTORS: others}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaperRule(Rule):
    """The paper's update (section 2.1): the sum of the gradients of a batch, at a rate per word."""

    epsilon_0: Positive = key(1e-3, 'the paper: 1e-3')
    r: NonNegative = key(1e-8, 'the paper: 1e-8')
    decay: NonNegative = key(1e-4, 'the paper: 1e-4 on Brown, 1e-5 on AP News')
    updates_rows = True

    def make(self) -> Transformation:
        """See `Rule.make`."""
        return optax.identity()

    def make_learning_rate(self, total_steps: int, batch_size: int) -> LearningRate:
        """See `Rule.make_learning_rate`."""
        return functools.partial(paper_schedule, batch_size=batch_size)

    def peak_table_rate(self, batch_size: int) -> float:
        """See `Rule.peak_table_rate`."""
        return batch_size * self.epsilon_0


def is_constant(rule: Rule) -> bool:
    """Returns whether the rate is the same in every update."""
    return isinstance(rule, ScheduledRule) and not rule.warmup and rule.schedule.is_constant


class Optimizer(NamedTuple):
    """What `make_optimizer` returns. Equal arguments give the same object.

    Attributes:
        chain: Returns the chain of hyperparameters, which may be traced. Its `update` takes the extra arguments `step`,
            and `rows` where the gradients of the tables are gathered rows: {table: row numbers}.
        learning_rate: The function (hyperparameters, step) -> rate.
        rule: The update rule.
    """

    chain: Callable[[Hyperparameters], optax.GradientTransformationExtraArgs]
    learning_rate: LearningRate
    rule: Rule

    def table_factor(self, hyperparameters: Hyperparameters, step: jax.Array) -> jax.Array:
        """Returns the factor by which weight decay multiplies a matrix of TABLES in an update."""
        rate = self.rule.table_rate * self.learning_rate(hyperparameters, step)
        return 1 - rate * hyperparameters['optimizer.decay']


@functools.cache
def make_optimizer(
    rule: Rule,
    total_steps: int,
    batch_size: int,
    tables: tuple[str, ...],
    rows_are_outputs: tuple[str, ...],
) -> Optimizer:
    """Returns the optimizer of a rule; equal arguments give the same object.

    Args:
        rule: The update rule.
        total_steps: Number of updates of the whole run.
        batch_size: Words per update.
        tables: The names of the parameters whose rows it updates as a table's: `Tables.all`.
        rows_are_outputs: The names of the matrices that are (out, in): `Tables.units`.
    """
    learning_rate = rule.make_learning_rate(total_steps, batch_size)
    has_constant_rate = is_constant(rule)

    def chain(hyperparameters: Hyperparameters) -> optax.GradientTransformationExtraArgs:
        schedule: optax.Schedule = functools.partial(learning_rate, hyperparameters)
        return rule.chain(schedule, has_constant_rate, hyperparameters['optimizer.decay'], tables, rows_are_outputs)

    return Optimizer(chain, learning_rate, rule)


def label_parameters(params: Mapping[str, Any], tables: Collection[str]) -> dict[str, Any]:
    """Returns the label of each parameter, in the structure of the parameters."""

    def label(leaf: Any) -> str:
        return HIDDEN if jnp.ndim(leaf) > 1 else VECTORS

    return {name: TABLES if name in tables else jax.tree.map(label, value) for name, value in params.items()}


def paper_schedule(hyperparameters: Hyperparameters, step: jax.Array, batch_size: int) -> jax.Array:
    """Computes epsilon_t = epsilon_0 / (1 + r t), t in words (the paper's section 2.1), times the batch.

    The gradient is a mean over the batch; times batch_size it is the sum, at the paper's rate per word. A batch of one
    is exactly the paper's update.
    """
    r = hyperparameters['optimizer.r']
    return batch_size * hyperparameters['optimizer.epsilon_0'] / (1 + r * step * batch_size)
