"""Optimizers: an update rule for each kind of parameter, in one Optax chain with weight decay, clipping and the rate.

Parameters have labels: TABLES have a row per word or class (C, U, W, b), HIDDEN are other matrices, VECTORS the rest.
"""

import abc
import dataclasses
import functools
import inspect
from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import optax

from nplm_jax.config.component import Component, CountOrZero, NonNegative, Positive, between, chosen, key
from nplm_jax.training import transformations
from nplm_jax.training.rate_schedules import RateSchedule

Hyperparams: TypeAlias = Mapping[str, Any]  # the traced values of a rule by the names of its fields
Transformation: TypeAlias = optax.GradientTransformation
HIDDEN, TABLES, VECTORS = ('hidden', 'tables', 'vectors')


class Rule(Component, abc.ABC):
    """An optimizer's update rule, its rate and its weight decay. Subclasses are frozen dataclasses.

    Attributes:
        traced: The fields whose values are in the optimizer's state, so that rules that differ only in them share a
            compiled update. An update has a rule with arrays for these values.
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

    traced: ClassVar[tuple[str, ...]]
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
    def make_learning_rate(self, total_steps: int, batch_size: int) -> optax.Schedule:
        """Returns the learning rate as a function of the step.

        Args:
            total_steps: Number of updates of the whole run.
            batch_size: Words per update.
        """

    @abc.abstractmethod
    def peak_table_rate(self, batch_size: int) -> float:
        """Returns the largest rate of the tables."""

    @property
    def hyperparams(self) -> dict[str, float]:
        """The traced values by the names of their fields."""
        return {name: float(getattr(self, name)) for name in self.traced}

    def clip(self) -> list[Transformation]:
        """Returns the clipping of the gradients; nothing without a limit."""
        return [transformations.clip_by_global_norm(self.clip_norm)] if self.clip_norm else []

    def chain(
        self, schedule: optax.Schedule, tables: tuple[str, ...], rows_are_outputs: tuple[str, ...]
    ) -> optax.GradientTransformationExtraArgs:
        """Returns the whole update as one Optax chain: weight decay, clipping, `make`'s transformation and the rate.

        Args:
            schedule: The function step -> rate.
            tables: The names of the parameters whose rows are updated as a table's.
            rows_are_outputs: The names of the matrices that are (out, in): `Tables.units`.
        """
        direction, decay_link = self.make(), transformations.add_weight_decay(self.decay)
        if isinstance(direction, dict):
            direction = optax.partition(direction, functools.partial(label_parameters, tables=tables))
        clip = self.clip()
        directions = [*clip, direction, decay_link] if self.decouples_decay else [decay_link, *clip, direction]
        rate = transformations.scale_by_learning_rate(schedule, dict.fromkeys(tables, self.table_rate))
        return optax.chain(*directions, rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduledRule(Rule):
    """A rule whose rate follows `optimizer.schedule`; the gradient is the mean over a batch."""

    traced = ('learning_rate', 'decay')
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

    def make_learning_rate(self, total_steps: int, batch_size: int) -> optax.Schedule:
        """See `Rule.make_learning_rate`."""
        peak, warmup = self.learning_rate, self.warmup
        schedule = self.schedule(peak, max(total_steps - warmup, 1))
        if not warmup:
            return schedule
        return optax.join_schedules([optax.linear_schedule(0.0, peak, warmup), schedule], [warmup])

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

    traced = ('epsilon_0', 'r', 'decay')
    epsilon_0: Positive = key(1e-3, 'the paper: 1e-3')
    r: NonNegative = key(1e-8, 'the paper: 1e-8')
    decay: NonNegative = key(1e-4, 'the paper: 1e-4 on Brown, 1e-5 on AP News')
    updates_rows = True

    def make(self) -> Transformation:
        """See `Rule.make`."""
        return optax.identity()

    def make_learning_rate(self, total_steps: int, batch_size: int) -> optax.Schedule:
        """See `Rule.make_learning_rate`."""
        return functools.partial(paper_schedule, self.epsilon_0, self.r, batch_size)

    def peak_table_rate(self, batch_size: int) -> float:
        """See `Rule.peak_table_rate`."""
        return batch_size * self.epsilon_0


def is_constant(rule: Rule) -> bool:
    """Returns whether the rate is the same in every update."""
    return isinstance(rule, ScheduledRule) and not rule.warmup and rule.schedule.is_constant


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """An update rule without its traced values, which its state holds: see `optax.inject_hyperparams`.

    Optimizers whose rules differ only in traced values are equal and share compiled updates.

    Attributes:
        rule: The update rule, with None for each traced value, so that an update cannot read that of another run.
        total_steps: Number of updates of the whole run.
        batch_size: Words per update.
        tables: The names of the parameters whose rows it updates as a table's: `Tables.all`.
        rows_are_outputs: The names of the matrices that are (out, in): `Tables.units`.
    """

    rule: Rule
    total_steps: int
    batch_size: int
    tables: tuple[str, ...]
    rows_are_outputs: tuple[str, ...]

    def init(self, params: Any, hyperparams: Hyperparams) -> optax.OptState:
        """Returns the state before the first update, with the traced values in its field `hyperparams`."""
        return self._inject(hyperparams).init(params)

    def update(self, updates: Any, state: Any, params: Any, **extra: Any) -> tuple[Any, optax.OptState]:
        """Returns the updates and the new state.

        Args:
            updates: The gradients.
            state: The state.
            params: The parameters.
            **extra: `step`, and `rows` where the gradients of the tables are gathered rows: {table: row numbers}.
        """
        return self._inject(state.hyperparams).update(updates, state, params, **extra)

    def learning_rate(self, hyperparams: Hyperparams, step: Any) -> Any:
        """Returns the learning rate of an update."""
        return self._learning_rate(self._rule(hyperparams))(step)

    def table_factor(self, state: Any, step: jax.Array) -> jax.Array:
        """Returns the factor by which weight decay multiplies a matrix of TABLES in an update."""
        rule = self._rule(state.hyperparams)
        return 1 - rule.table_rate * self._learning_rate(rule)(step) * rule.decay

    def _rule(self, hyperparams: Hyperparams) -> Rule:
        return dataclasses.replace(self.rule, **hyperparams)

    def _learning_rate(self, rule: Rule) -> optax.Schedule:
        return rule.make_learning_rate(self.total_steps, self.batch_size)

    def _inject(self, hyperparams: Hyperparams) -> optax.GradientTransformationExtraArgs:
        def chain(**hyperparams: Any) -> optax.GradientTransformationExtraArgs:
            rule = self._rule(hyperparams)
            return rule.chain(self._learning_rate(rule), self.tables, self.rows_are_outputs)

        names = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in hyperparams]
        chain.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]  # where Optax reads them
        return optax.inject_hyperparams(chain, hyperparam_dtype=jnp.float32)(**hyperparams)


def make_optimizer(
    rule: Rule, total_steps: int, batch_size: int, tables: tuple[str, ...], rows_are_outputs: tuple[str, ...] = ()
) -> Optimizer:
    """Returns the optimizer of a rule; for the arguments see `Optimizer`."""
    nothing: dict[str, Any] = dict.fromkeys(rule.traced)
    return Optimizer(dataclasses.replace(rule, **nothing), total_steps, batch_size, tables, rows_are_outputs)


def label_parameters(params: Mapping[str, Any], tables: Collection[str]) -> dict[str, Any]:
    """Returns the label of each parameter, in the structure of the parameters."""

    def label(leaf: Any) -> str:
        return HIDDEN if jnp.ndim(leaf) > 1 else VECTORS

    return {name: TABLES if name in tables else jax.tree.map(label, value) for name, value in params.items()}


def paper_schedule(epsilon_0: Any, r: Any, batch_size: int, step: Any) -> Any:
    """Computes epsilon_t = epsilon_0 / (1 + r t), t in words (the paper's section 2.1), times the batch.

    The gradient is a mean over the batch; times batch_size it is the sum, at the paper's rate per word. A batch of one
    is exactly the paper's update.
    """
    return batch_size * epsilon_0 / (1 + r * step * batch_size)
