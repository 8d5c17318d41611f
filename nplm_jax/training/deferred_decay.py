"""Deferred weight decay and averaging of tables with sparse updates.

Weight decay and running averages change all rows in every update. Within a chunk of updates, a table is therefore
represented by an array and a factor (`Scales`). Decay changes only the factor, and an update touches few rows. The
result is exact.
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
    """Factors that defer the weight decay and averaging of tables to the end of a chunk of updates.

    The value of a table is weights * array. Its running average is kept * average array + added * array.

    Attributes:
        weights: Table name -> factor, float32.
        kept: The common factor of all averages, float32.
        added: Table name -> factor, float32.
    """

    weights: dict[str, jax.Array]
    kept: jax.Array
    added: dict[str, jax.Array]

    @classmethod
    def start(cls, network: Network) -> Self:
        """Returns initial factors, with which each table of a network equals its array."""
        tables = network.tables.of_words
        return cls(dict.fromkeys(tables, jnp.ones(())), jnp.ones(()), dict.fromkeys(tables, jnp.zeros(())))

    def update(
        self, params: Params, average: Params | None, updates: Params, ids: dict[str, Any], factor: Any, kept: Any
    ) -> tuple[Self, Params, Params | None]:
        """Computes params = factor * params + updates and average = kept * average + (1 - kept) * params.

        The factor applies only to the matrices in `weights`.

        Args:
            params: The parameters, with tables represented by their arrays.
            average: The running average of the parameters, or None.
            updates: The updates, structured like the result of `row_gradients`.
            ids: Table name -> indices of the updated rows, see `row_gradients`.
            factor: The factor of matrix-valued tables.
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
        """Applies the deferred factors. Returns the actual parameters and average."""
        if average is not None:
            average = average | {name: self.kept * average[name] + q * params[name] for name, q in self.added.items()}
        return params | {name: w * params[name] for name, w in self.weights.items() if params[name].ndim > 1}, average


def mix(kept: Any, old: Any, new: Any) -> Any:
    """Returns kept * old + (1 - kept) * new, leaf by leaf."""
    return jax.tree.map(lambda a, b: kept * a + (1 - kept) * b, old, new)


def add_rows(params: Params, updates: Params, ids: dict[str, Any]) -> Params:
    """Adds updates, structured like the result of `row_gradients`. Updates of repeated rows accumulate.

    Each table takes a single scatter, because XLA may copy the whole table before a second one.
    """

    def add(name: str) -> Any:
        if name in ids:
            return params[name].at[ids[name]].add(updates[name], mode='drop')
        return jax.tree.map(jnp.add, params[name], updates[name])

    return {name: add(name) for name in params}
