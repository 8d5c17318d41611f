"""Deferred weight decay and averaging of the tables that sparse updates change.

Weight decay and the running average change all rows in every update. Within a chunk of updates a table is therefore
represented by an array and a factor (`Scales`): decay changes only the factor, so an update touches few rows, exactly.
"""

import dataclasses
from typing import Any, Self

import flax.struct
import jax
import jax.numpy as jnp

from nplm_jax.models.network import Network
from nplm_jax.outputs.output_layer import Params


@flax.struct.dataclass
class Scales:
    """Factors that defer the weight decay and the averaging of the tables to the end of a chunk of updates.

    A table is weights * its array; its running average is kept * the average's array + added * the table's array.

    Attributes:
        weights: A factor for each table, by name, float32.
        kept: A factor of all averages, float32.
        added: A factor for each table, by name, float32.
    """

    weights: dict[str, jax.Array]
    kept: jax.Array
    added: dict[str, jax.Array]

    @classmethod
    def start(cls, network: Network) -> Self:
        """Returns the factors at which each table of a network equals its array."""
        tables = network.tables.of_words
        return cls(dict.fromkeys(tables, jnp.ones(())), jnp.ones(()), dict.fromkeys(tables, jnp.zeros(())))

    def update(
        self, params: Params, average: Params | None, updates: Params, ids: dict[str, Any], factor: Any, kept: Any
    ) -> tuple[Self, Params, Params | None]:
        """Makes an update: params = factor * params + updates; average = kept * average + (1 - kept) * params.

        Parameters that are not matrices of `weights` have the factor 1.

        Args:
            params: The parameters, the tables as arrays.
            average: Their running average, if there is one.
            updates: Updates in the structure of `row_gradients`; those of other parameters are complete.
            ids: The numbers of the updated rows of each table, as `row_gradients` returns them.
            factor: The factor of the tables that are matrices.
            kept: The decay of the average.

        Returns:
            The new factors, parameters and average.
        """
        weights = {name: w * factor if params[name].ndim > 1 else w for name, w in self.weights.items()}
        updates = updates | {name: updates[name] / weights[name] for name in ids}
        params = add_rows(params, updates, ids)
        if average is None:
            return dataclasses.replace(self, weights=weights), params, None
        mixed = {name: mix(kept, average[name], params[name]) for name in params if name not in ids}
        tables = {name: average[name] for name in ids}
        corrections = {name: -self.added[name] / self.kept * updates[name] for name in ids}
        added = {name: kept * old + (1 - kept) * weights[name] for name, old in self.added.items()}
        scales = dataclasses.replace(self, weights=weights, kept=kept * self.kept, added=added)
        return scales, params, mixed | add_rows(tables, corrections, ids)

    def apply(self, params: Params, average: Params | None) -> tuple[Params, Params | None]:
        """Returns the parameters and the average that the arrays stand for."""
        if average is not None:
            average = average | {name: self.kept * average[name] + q * params[name] for name, q in self.added.items()}
        return params | {name: w * params[name] for name, w in self.weights.items() if params[name].ndim > 1}, average


def mix(kept: Any, old: Any, new: Any) -> Any:
    """Returns kept * old + (1 - kept) * new, leaf by leaf."""
    return jax.tree.map(lambda a, b: kept * a + (1 - kept) * b, old, new)


def add_rows(params: Params, updates: Params, ids: dict[str, Any]) -> Params:
    """Adds updates in the structure of `row_gradients`. A row that occurs twice gets both updates.

    Each table has one scatter for all its rows: before a second one XLA may copy the whole table.
    """

    def add(name: str) -> Any:
        if name in ids:
            return params[name].at[ids[name]].add(updates[name], mode='drop')
        return jax.tree.map(jnp.add, params[name], updates[name])

    return {name: add(name) for name in params}
