"""Optimizers: one Optax chain of weight decay, clipping, an update rule for each kind of parameter, and the rate.

Parameters have labels: TABLES have a row per word or class (C, U, W, b), HIDDEN are other matrices, VECTORS the rest.
"""

import functools
import math
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax

from nplm_jax import config
from nplm_jax.config import OptimizerSettings, Settings
from nplm_jax.training import optimizer_plugin
from nplm_jax.utils import plugins
from nplm_jax.utils.errors import require

# The keys whose values are arguments of the compiled update: runs that differ only in them share one program.
HYPERPARAMETERS = (
    'seed',
    'optimizer.learning_rate',
    'optimizer.decay',
    'optimizer.paper.epsilon_0',
    'optimizer.paper.r',
    'optimizer.paper.decay',
)
Hyperparameters = dict[str, Any]  # scalar arrays by these keys
LearningRate = Callable[[Hyperparameters, Any], Any]  # (hyperparameters, step) -> rate
Schedule = Callable[[Any], Any]  # step -> rate
Transformation: TypeAlias = optax.GradientTransformation
HIDDEN, TABLES, VECTORS = ('hidden', 'tables', 'vectors')


def hyperparameters_of(settings: Settings) -> Hyperparameters:
    """Returns the run's hyperparameters: int32 the seed, float32 the others."""
    values = config.to_flat(settings)
    return {key: (np.int32 if key == 'seed' else np.float32)(values[key]) for key in HYPERPARAMETERS}


class Rule(NamedTuple):
    """The update rule of an optimizer, an entry of OPTIMIZERS.

    Attributes:
        keys: The keys of `optimizer.*` that it reads.
        make: Returns one Optax transformation for all parameters, or one for each label. The chain multiplies the
            updates by the negative rate. That of a plug-in is for the parameters that the plug-in does not update.
        updates_rows: Whether the rows of a table without a gradient stay as they are, so that a sparse loss updates few
            rows. The state of a row must then be one number or nothing, and a rule must know `rows`; see
            `scale_by_row_moment`.
        sums_rows: Whether it needs the sum of the gradients of a row that occurs several times.
        decouples_decay: Whether weight decay follows the rule, as in AdamW, and is not a part of the gradients.
    """

    keys: tuple[str, ...]
    make: Callable[[OptimizerSettings], Transformation | dict[str, Transformation]]
    updates_rows: Callable[[OptimizerSettings], bool] = lambda _: False
    sums_rows: bool = False
    decouples_decay: bool = False


def _rowwise_adam(settings: OptimizerSettings) -> dict[str, Transformation]:
    others = optax.scale_by_adam()
    return {HIDDEN: others, TABLES: scale_by_row_moment(settings.row_adaptivity), VECTORS: others}


COMMON = ('learning_rate', 'table_rate', 'schedule', 'warmup', 'clip_norm', 'decay')
OPTIMIZERS = {
    'sgd': Rule(
        (*COMMON, 'momentum'),
        lambda settings: optax.trace(settings.momentum) if settings.momentum else optax.identity(),
        updates_rows=lambda settings: not (settings.momentum or settings.clip_norm),
    ),
    'adam': Rule(COMMON, lambda _: optax.scale_by_adam()),
    'adagrad': Rule(COMMON, lambda _: optax.scale_by_rss()),
    'rowwise_adam': Rule(
        (*COMMON, 'row_adaptivity'), _rowwise_adam, lambda _: True, sums_rows=True, decouples_decay=True
    ),
    'paper': Rule(('paper.epsilon_0', 'paper.r', 'paper.decay'), lambda _: optax.identity(), lambda _: True),
}


# The rates of an optimizer named by import path, such as Muon, if the user sets none; the default is too large for it.
PLUGIN_RATES = {'optimizer.learning_rate': 0.003, 'optimizer.table_rate': 2.0}
PLUGIN = Rule(
    (*COMMON, 'row_adaptivity', 'tables', 'options'),
    _rowwise_adam,
    updates_rows=lambda settings: settings.tables == 'rowwise_adam',
    sums_rows=True,
    decouples_decay=True,
)


def check_settings(settings: OptimizerSettings) -> None:
    """Raises BadInput for a plug-in that cannot be used: see `optimizer_plugin.load`."""
    if not plugins.is_path(settings.name):
        return
    for key, value in vars(settings.options).items():
        allowed = 'must be 0: optimizer.decay is the weight decay'
        require(not (plugins.DECAY in key and value), f'optimizer.options.{key}', value, allowed)
    jax.eval_shape(lambda rate: optimizer_plugin.load(settings)(_rate(settings, lambda _: rate)) and None, 1.0)


def rule_of(settings: OptimizerSettings) -> Rule:
    """Returns the rule that `optimizer.name` names."""
    return PLUGIN if plugins.is_path(settings.name) else OPTIMIZERS[settings.name]


class Optimizer(NamedTuple):
    """What `make_optimizer` returns. Equal arguments give the same object.

    Attributes:
        chain: Returns the chain of hyperparameters, which may be traced. Its `update` takes the extra arguments `step`,
            and `rows` where the gradients of the tables are gathered rows: {table: row numbers}.
        learning_rate: The function (hyperparameters, step) -> rate.
        table_rate: The rate of the tables as a multiple of the learning rate.
        decay_key: The config key of the coefficient of R(theta).
        rule: The update rule.
    """

    chain: Callable[[Hyperparameters], optax.GradientTransformationExtraArgs]
    learning_rate: LearningRate
    table_rate: float
    decay_key: str
    rule: Rule

    def table_factor(self, hyperparameters: Hyperparameters, step: jax.Array) -> jax.Array:
        """Returns the factor by which weight decay multiplies a matrix of TABLES in an update."""
        return 1 - self.table_rate * self.learning_rate(hyperparameters, step) * hyperparameters[self.decay_key]


def make_optimizer(
    settings: Settings, total_steps: int, tables: tuple[str, ...], rows_are_outputs: frozenset[str] = frozenset()
) -> Optimizer:
    """Returns the optimizer of a run. Runs that differ only in HYPERPARAMETERS get the same object.

    Args:
        settings: The run's settings.
        total_steps: Number of updates of the whole run.
        tables: The names of the parameters whose rows it updates as a table's: `Network.tables`.
        rows_are_outputs: See `Body.rows_are_outputs`.
    """
    neutral = config.replace(settings, dict.fromkeys(HYPERPARAMETERS, 1))
    return _make_optimizer(neutral.optimizer, total_steps, settings.train.batch_size, tables, rows_are_outputs)


@functools.cache
def _make_optimizer(
    settings: OptimizerSettings,
    total_steps: int,
    batch_size: int,
    tables: tuple[str, ...],
    rows_are_outputs: frozenset[str],
) -> Optimizer:
    rule = rule_of(settings)
    decay_key = 'optimizer.paper.decay' if settings.name == 'paper' else 'optimizer.decay'
    learning_rate = learning_rate_schedule(settings, total_steps, batch_size)
    table_rate = settings.table_rate if 'table_rate' in rule.keys else 1.0
    clip = [clip_by_global_norm(settings.clip_norm)] if 'clip_norm' in rule.keys and settings.clip_norm else []

    def chain(hyperparameters: Hyperparameters) -> optax.GradientTransformationExtraArgs:
        schedule: Schedule = functools.partial(learning_rate, hyperparameters)
        decay = hyperparameters[decay_key]
        if rule is PLUGIN:
            return optax.chain(*clip, _plugin_links(settings, schedule, decay, tables, rows_are_outputs))
        direction, decay_link = rule.make(settings), add_weight_decay(decay)
        if isinstance(direction, dict):
            direction = optax.partition(direction, functools.partial(label_parameters, tables=tables))
        directions = [*clip, direction, decay_link] if rule.decouples_decay else [decay_link, *clip, direction]
        return optax.chain(*directions, scale_by_learning_rate(schedule, dict.fromkeys(tables, table_rate)))

    return Optimizer(chain, learning_rate, table_rate, decay_key, rule)


def _plugin_links(
    settings: OptimizerSettings,
    schedule: Schedule,
    decay: Any,
    tables: tuple[str, ...],
    rows_are_outputs: frozenset[str],
) -> optax.GradientTransformationExtraArgs:
    """Returns the updates, with rate and decay, of a plug-in, and of what updates the other parameters, by label.

    Two labels of one rate share one instance of a plug-in, since it may have numbers for all of its parameters.
    """
    make, table_rate = optimizer_plugin.load(settings), settings.table_rate
    table_schedule: Schedule = schedule if table_rate == 1 else lambda step: table_rate * schedule(step)

    def plugin(schedule: Schedule) -> optax.GradientTransformationExtraArgs:
        decay_at = lambda step: schedule(step) * decay  # noqa: E731
        return optimizer_plugin.transformation(make, _rate(settings, schedule), decay_at, rows_are_outputs)

    if settings.tables == 'same' and table_rate == 1:
        return plugin(schedule)
    label = functools.partial(label_parameters, tables=tables)
    if settings.tables == 'same':
        rules = {HIDDEN: plugin(schedule), TABLES: plugin(table_schedule)}
        return optax.partition(rules, lambda params: jax.tree.map({VECTORS: HIDDEN}.get, label(params), label(params)))
    others: Any = _rowwise_adam(settings)
    rules = {
        HIDDEN: plugin(schedule),
        TABLES: optax.chain(others[TABLES], add_weight_decay(decay), scale_by_learning_rate(table_schedule)),
        VECTORS: optax.chain(others[VECTORS], scale_by_learning_rate(schedule)),
    }
    return optax.partition(rules, label)


def _rate(settings: OptimizerSettings, schedule: Schedule) -> Any:
    """Returns what a plug-in gets as `learning_rate`: a number if it is constant, else a schedule of Optax."""
    return schedule(0) if settings.schedule == 'constant' and not settings.warmup else schedule


def updates_rows(settings: Settings) -> bool:
    """Returns whether a sparse loss updates only the rows that it reads (`Rule.updates_rows`).

    During an execution weight decay and the running average shrink the factors of `sparse_rows.Scales`. If these could
    underflow, updates are dense.
    """
    optimizer, train = settings.optimizer, settings.train
    paper = optimizer.paper
    rate = (
        train.batch_size * paper.epsilon_0
        if optimizer.name == 'paper'
        else optimizer.table_rate * optimizer.learning_rate
    )
    smallest = min(1 - rate * optimizer.weight_decay, train.average or 1.0)
    underflows = smallest <= 0 or train.steps_per_execution * math.log(smallest) < -10
    return rule_of(optimizer).updates_rows(optimizer) and not underflows


def label_parameters(params: Mapping[str, Any], tables: Collection[str]) -> dict[str, Any]:
    """Returns the label of each parameter, in the structure of the parameters."""

    def label(leaf: Any) -> str:
        return HIDDEN if jnp.ndim(leaf) > 1 else VECTORS

    return {name: TABLES if name in tables else jax.tree.map(label, value) for name, value in params.items()}


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
    schedule: Schedule, multiples: Mapping[str, float] = types.MappingProxyType({})
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


def paper_schedule(hyperparameters: Hyperparameters, step: jax.Array, batch_size: int) -> jax.Array:
    """Computes epsilon_t = epsilon_0 / (1 + r t), t in words (the paper's section 2.1), times the batch.

    The gradient is a mean over the batch; times batch_size it is the sum, at the paper's rate per word. A batch of one
    is exactly the paper's update.
    """
    r = hyperparameters['optimizer.paper.r']
    return batch_size * hyperparameters['optimizer.paper.epsilon_0'] / (1 + r * step * batch_size)


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
        peak = hyperparameters['optimizer.learning_rate']
        schedule = {
            'constant': lambda: optax.constant_schedule(peak),
            'linear': lambda: optax.linear_schedule(peak, 0.0, num_after),
            'cosine': lambda: optax.cosine_decay_schedule(peak, num_after),
        }[settings.schedule]()
        if warmup:
            schedule = optax.join_schedules([optax.linear_schedule(0.0, peak, warmup), schedule], [warmup])
        return schedule(step)

    return learning_rate


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
                mean = jnp.sum(nu_V) / jnp.maximum(jnp.count_nonzero(nu_V), 1)  # padding rows never have one
                nu_R = nu_R**adaptivity * mean ** (1 - adaptivity)
            denominator_R = jnp.sqrt(nu_R / correction) + eps
            return g_RxD / denominator_R.reshape(-1, *[1] * (g_RxD.ndim - 1))

        nu = jax.tree.map_with_path(new_nu, updates, state.nu)
        return jax.tree.map_with_path(scale, updates, nu), RowMomentState(count, nu)

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
