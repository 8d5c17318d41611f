"""Builds optimizers as Optax chains of an update rule, weight decay, gradient clipping and a learning-rate schedule."""

import abc
import dataclasses
import functools
import inspect
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import optax

from nplm_jax.config.component import Component, CountOrZero, NonNegative, Positive, between, chosen, key
from nplm_jax.training import transformations
from nplm_jax.training.rate_schedules import RateSchedule, paper_schedule
from nplm_jax.training.transformations import HIDDEN, TABLES, VECTORS

Hyperparams: TypeAlias = Mapping[str, Any]  # name of a rule's field -> traced value
Transformation: TypeAlias = optax.GradientTransformation
_MIN_DECAY = 1e-5  # above this relative decay per update, float32 rounding changes the decay by less than 1%


class Rule(Component, abc.ABC):
    """The update rule of an optimizer, including its rate and weight decay. Subclasses are frozen dataclasses.

    Attributes:
        traced: The fields whose values are stored in the optimizer state. Rules that differ only in these fields share
            a compiled update, which takes the values as arrays.
        sums_rows: Whether all gradients of a table row must be summed before the rule is applied.
        decouples_decay: Whether weight decay is applied after the rule, as in AdamW, instead of to the gradients.
        updates_rows: Whether table rows without a gradient remain unchanged, so that sparse losses update only a few
            rows. The rule must then accept `rows` (see `scale_by_row_moment`) and keep at most one number per row.
        decay: The coefficient of the weight decay R(theta) = decay/2 |theta|^2.
        warmup: The number of updates of linear warm-up.
        table_rate: The learning rate of the tables, as a multiple of the learning rate of the other parameters.
        clip_norm: The maximum global norm of the gradients. 0 means that there is no limit.
    """

    traced: ClassVar[tuple[str, ...]]
    sums_rows: ClassVar[bool] = False
    decouples_decay: ClassVar[bool] = False
    updates_rows: ClassVar[Any] = False  # a bool or a property
    decay: float
    warmup: int = 0
    table_rate: float = 1.0
    clip_norm: float = 0.0

    @abc.abstractmethod
    def make(self) -> Transformation | dict[str, Transformation]:
        """Returns a single Optax transformation for all parameters, or a dict with one for each label of parameters.

        The transformation must not scale updates by the learning rate, because `chain` does so.
        """

    @abc.abstractmethod
    def make_learning_rate(self, total_steps: int, batch_size: int) -> optax.Schedule:
        """Returns the learning rate as a function of the step.

        Args:
            total_steps: The number of updates of the run.
            batch_size: The number of words per update.
        """

    @abc.abstractmethod
    def peak_table_rate(self, batch_size: int) -> float:
        """Returns the highest learning rate of the tables during a run."""

    @property
    def hyperparams(self) -> dict[str, float]:
        """The traced values by field name."""
        return {name: float(getattr(self, name)) for name in self.traced}

    def clip(self) -> list[Transformation]:
        """Returns a list with the gradient clipping transformation, or an empty list if there is no limit."""
        return [transformations.clip_by_global_norm(self.clip_norm)] if self.clip_norm else []

    def chain(
        self, schedule: optax.Schedule, tables: tuple[str, ...], out_in_matrices: tuple[str, ...]
    ) -> optax.GradientTransformationExtraArgs:
        """Combines weight decay, clipping, the transformation of `make` and the learning rate into an Optax chain.

        Args:
            schedule: The learning rate as a function of the step.
            tables: The names of the parameters that are updated as tables.
            out_in_matrices: The names of the matrices stored as (out, in); see `Tables.units`.
        """
        direction, decay_link = self.make(), transformations.add_weight_decay(self.decay)
        if isinstance(direction, dict):
            direction = optax.partition(direction, functools.partial(transformations.label_parameters, tables=tables))
        clip = self.clip()
        directions = [*clip, direction, decay_link] if self.decouples_decay else [decay_link, *clip, direction]
        rate = transformations.scale_by_learning_rate(schedule, dict.fromkeys(tables, self.table_rate))
        return optax.chain(*directions, rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduledRule(Rule):
    """A rule whose learning rate follows `optimizer.schedule`. It is applied to the mean gradient over a batch."""

    traced = ('learning_rate', 'decay')
    learning_rate: Positive = key(2.0, 'peak learning rate; scale it in proportion to the batch size')
    schedule: RateSchedule = chosen('optimizer.schedule')
    warmup: CountOrZero = key(0, 'number of updates over which the learning rate increases linearly to its peak')
    table_rate: Positive = key(1.0, 'learning rate of C, U, W and b, as a multiple of optimizer.learning_rate')
    clip_norm: NonNegative = key(0.0, 'maximum global norm of the gradients; 0 means no limit')
    decay: NonNegative = key(
        1e-5,
        'weight decay: R(theta) = decay/2 |theta|^2 over C, H, U and W. For rowwise_adam and plug-ins, the decay is '
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

    learning_rate: Positive = key(0.003, 'peak learning rate')

    def make(self) -> Transformation:
        """See `Rule.make`."""
        return optax.scale_by_adam()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adagrad(ScheduledRule):
    """AdaGrad (Duchi et al., 2011)."""

    learning_rate: Positive = key(0.05, 'peak learning rate')

    def make(self) -> Transformation:
        """See `Rule.make`."""
        return optax.scale_by_rss()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowwiseAdam(ScheduledRule):
    """A variant of Adam in which each row of C, U, W and b has a single second moment and no momentum.

    Unless `output.kind` is full, an update therefore touches only a few rows; see `scale_by_row_moment`.
    """

    learning_rate: Positive = key(0.003, 'peak learning rate')
    table_rate: Positive = key(2.0, 'learning rate of C, U, W and b, as a multiple of optimizer.learning_rate')
    row_adaptivity: Annotated[float, between(0, 1)] = key(
        1.0,
        'second moments of rows: 1 means that each row has its own; 0 means that all rows of a parameter share one; '
        'values in between mean a weighted geometric mean of the two. Below 1, the rows of rare words change less',
    )
    updates_rows = True
    sums_rows = True
    decouples_decay = True

    def make(self) -> dict[str, Transformation]:
        """See `Rule.make`."""
        others = optax.scale_by_adam()
        moments = transformations.scale_by_row_moment(self.row_adaptivity)
        return {HIDDEN: others, TABLES: moments, VECTORS: others}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PaperRule(Rule):
    """The paper's update (section 2.1), which multiplies the sum of a batch's gradients by a learning rate per word."""

    traced = ('epsilon_0', 'r', 'decay')
    epsilon_0: Positive = key(1e-3, 'initial learning rate per word; the paper uses 1e-3')
    r: NonNegative = key(1e-8, 'learning rate after t words: epsilon_0 / (1 + r t); the paper uses 1e-8')
    decay: NonNegative = key(1e-4, 'weight decay: decay/2 |theta|^2; the paper uses 1e-4 on Brown and 1e-5 on AP News')
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
    """Returns whether a rule has the same rate in every update."""
    return isinstance(rule, ScheduledRule) and not rule.warmup and rule.schedule.is_constant


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """An update rule whose traced values are part of the optimizer state; see `optax.inject_hyperparams`.

    Optimizers whose rules differ only in traced values compare equal and share compiled updates.

    Attributes:
        rule: The update rule. Its traced fields are None, so that an update cannot use the values of another run.
        total_steps: The number of updates of the run.
        batch_size: The number of words per update.
        tables: The names of the parameters that are updated as tables; see `Tables.all`.
        out_in_matrices: The names of the matrices stored as (out, in); see `Tables.units`.
    """

    rule: Rule
    total_steps: int
    batch_size: int
    tables: tuple[str, ...]
    out_in_matrices: tuple[str, ...]

    def init(self, params: Any, hyperparams: Hyperparams) -> optax.OptState:
        """Returns the initial state, whose field `hyperparams` contains the traced values."""
        return self._inject(hyperparams).init(params)

    def update(self, updates: Any, state: Any, params: Any, **extra: Any) -> tuple[Any, optax.OptState]:
        """Returns the updates and the new state.

        Args:
            updates: The gradients of the loss, structured like the parameters.
            state: The state of the optimizer before the update.
            params: The parameters before the update.
            **extra: `step`, the number of completed updates. If the gradients of the tables are gathered rows, also
                `rows`, a dict from the name of each table to the indices of these rows.
        """
        now = state._replace(hyperparams=self._hyperparams_at(state, extra['step']))
        updates, new_state = self._inject(state.hyperparams).update(updates, now, params, **extra)
        return updates, new_state._replace(hyperparams=state.hyperparams)

    def learning_rate(self, hyperparams: Hyperparams, step: Any) -> Any:
        """Returns the learning rate of update `step`."""
        return self._schedule(self._rule(hyperparams))(step)

    def table_factor(self, state: Any, step: jax.Array) -> jax.Array:
        """Returns the factor by which the weight decay of an update multiplies each matrix-valued table."""
        rule = self._rule(self._hyperparams_at(state, step))
        return 1 - rule.table_rate * self._schedule(rule)(step) * rule.decay

    def _hyperparams_at(self, state: Any, step: jax.Array) -> Hyperparams:
        """Returns the traced values for an update. If the weight decay is small, several decays are applied at once.

        With a batch size of 1, as in the paper, a single decay multiplies the weights by 1 - 1e-7, a number that
        float32 cannot represent accurately.
        """
        hyperparams: Hyperparams = state.hyperparams
        if not (self.rule.updates_rows and 'decay' in hyperparams):
            return hyperparams
        rule = self._rule(hyperparams)
        fastest = rule.peak_table_rate(self.batch_size) * max(1.0, 1 / rule.table_rate)  # of tables or other matrices
        decay = fastest * hyperparams['decay']
        interval = jnp.where(decay < _MIN_DECAY, jnp.clip(jnp.round(10 * _MIN_DECAY / decay), 1, 2**30), 1)
        applies = (step + 1) % interval.astype(jnp.int32) == 0
        return {**hyperparams, 'decay': jnp.where(applies, interval * hyperparams['decay'], 0)}

    def _rule(self, hyperparams: Hyperparams) -> Rule:
        return dataclasses.replace(self.rule, **hyperparams)

    def _schedule(self, rule: Rule) -> optax.Schedule:
        return rule.make_learning_rate(self.total_steps, self.batch_size)

    def _inject(self, hyperparams: Hyperparams) -> optax.GradientTransformationExtraArgs:
        def chain(**hyperparams: Any) -> optax.GradientTransformationExtraArgs:
            rule = self._rule(hyperparams)
            return rule.chain(self._schedule(rule), self.tables, self.out_in_matrices)

        names = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in hyperparams]
        chain.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]  # read by Optax
        return optax.inject_hyperparams(chain, hyperparam_dtype=jnp.float32)(**hyperparams)


def make_optimizer(
    rule: Rule, total_steps: int, batch_size: int, tables: tuple[str, ...], out_in_matrices: tuple[str, ...] = ()
) -> Optimizer:
    """Returns the optimizer that applies a rule. See `Optimizer` for the arguments."""
    nothing: dict[str, Any] = dict.fromkeys(rule.traced)
    return Optimizer(dataclasses.replace(rule, **nothing), total_steps, batch_size, tables, out_in_matrices)
