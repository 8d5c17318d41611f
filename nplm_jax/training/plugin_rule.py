"""Defines the update rule for optimizers that are named by import path (plug-ins), such as Muon."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Literal

import jax
import optax

from nplm_jax.config import plugins
from nplm_jax.config.checked_fields import Options
from nplm_jax.config.component import key
from nplm_jax.training import optimizer_plugin
from nplm_jax.training.optimizers import RowwiseAdam, is_constant
from nplm_jax.training.transformations import (
    HIDDEN,
    TABLES,
    VECTORS,
    add_weight_decay,
    label_parameters,
    scale_by_learning_rate,
)
from nplm_jax.utils.errors import require


@dataclasses.dataclass(frozen=True, kw_only=True)
class PluginRule(RowwiseAdam):
    """An optimizer named by import path in `optimizer.name`. By default, it updates only hidden matrices; see `tables`.

    Attributes:
        name: The import path of the function, such as that of an Optax optimizer.
        options: The function and its options. Redefining the function, for example in a notebook, gives a rule that is
            not equal to the previous one.
    """

    tables: Literal['rowwise_adam', 'same'] = key(
        'rowwise_adam',
        'optimizer of C, U, W and b: rowwise_adam (the named optimizer updates only the hidden matrices, and Adam '
        'updates other vectors) | same (the named optimizer updates all parameters, and the learning rate of C, U, '
        'W and b is table_rate times learning_rate)',
    )
    options: Options = Options()

    @property
    def updates_rows(self) -> bool:  # type: ignore[override]
        """See `Rule.updates_rows`."""
        return self.tables == 'rowwise_adam'

    def check(self) -> None:
        """See `Component.check`. Also rejects options that set weight decay or are unused, and unusable functions."""
        plugins.check_arguments('optimizer.name', self.name, self.options.function, 'learning_rate')
        for name, value in self.options.items():
            allowed = 'must be 0; set optimizer.decay for weight decay'
            decays = plugins.DECAY in name and type(value) is not bool and value != 0  # weight_decay_mask is a bool
            require(not decays, f'optimizer.options.{name}', value, allowed)
        allowed = 'must be 1 with optimizer.tables=same, because rowwise_adam then updates no parameter'
        is_used = self.tables == 'rowwise_adam' or self.row_adaptivity == 1
        require(is_used, 'optimizer.row_adaptivity', self.row_adaptivity, allowed)
        has_constant_rate, make = is_constant(self), self._factory
        jax.eval_shape(lambda rate: make(rate if has_constant_rate else lambda _: rate) and None, 1.0)

    @property
    def _factory(self) -> optimizer_plugin.Factory:
        return optimizer_plugin.load(self.name, self.options.function, self.options)

    def chain(
        self, schedule: optax.Schedule, tables: tuple[str, ...], out_in_matrices: tuple[str, ...]
    ) -> optax.GradientTransformationExtraArgs:
        """See `Rule.chain`.

        A single instance of the plug-in updates all parameters with the same learning rate, because a plug-in may
        compute statistics over all its parameters.
        """
        make, table_rate = self._factory, self.table_rate
        table_schedule: optax.Schedule = schedule if table_rate == 1 else lambda step: table_rate * schedule(step)

        def plugin(schedule: optax.Schedule) -> optax.GradientTransformationExtraArgs:
            decay_at = lambda step: schedule(step) * self.decay  # noqa: E731
            rate = schedule(0) if is_constant(self) else schedule
            return optimizer_plugin.transformation(make, rate, decay_at, out_in_matrices)

        clip = self.clip()
        if self.tables == 'same' and table_rate == 1:
            return optax.chain(*clip, plugin(schedule))
        label = functools.partial(label_parameters, tables=tables)
        if self.tables == 'same':
            rules = {HIDDEN: plugin(schedule), TABLES: plugin(table_schedule)}
            to_hidden = {VECTORS: HIDDEN}
            return optax.chain(
                *clip, optax.partition(rules, lambda params: jax.tree.map(to_hidden.get, label(params), label(params)))
            )

        def label_checked(params: Mapping[str, Any]) -> dict[str, Any]:
            labels = label(params)
            allowed = f'must be same, because the network has no hidden matrix for {self.name}'
            require(HIDDEN in jax.tree.leaves(labels), 'optimizer.tables', self.tables, allowed)
            return labels

        others = self.make()
        rules = {
            HIDDEN: plugin(schedule),
            TABLES: optax.chain(others[TABLES], add_weight_decay(self.decay), scale_by_learning_rate(table_schedule)),
            VECTORS: optax.chain(others[VECTORS], scale_by_learning_rate(schedule)),
        }
        return optax.chain(*clip, optax.partition(rules, label_checked))
