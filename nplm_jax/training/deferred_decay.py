"""Defers the weight decay and the averaging of tables with sparse updates.

If applied directly, weight decay and running averages would change all rows of a table in every update. Within a chunk
of updates, a table is therefore represented by an array and a scalar factor; see `DeferredScaling`. Weight decay
changes only the factor, so that an update changes only a few rows of the array. The result is mathematically the same.
"""

import dataclasses
from typing import Any, Self

import flax.struct
import jax
import jax.numpy as jnp

from nplm_jax.models.network import Network
from nplm_jax.outputs.output_layer import Params


@flax.struct.dataclass
class DeferredScaling:
    """Scalars that represent the weight decay and the averaging of tables until the end of a chunk of updates.

    The actual value of a table is scale * array. The actual average of a table is average_scale * (array of the
    average) + average_weight * array.

    Attributes:
        scales: The scale of each table, float32, by table name.
        average_scale: The factor that multiplies the arrays of all averages, float32.
        average_weights: The weight of each table's array in its average, float32, by table name.
    """

    scales: dict[str, jax.Array]
    average_scale: jax.Array
    average_weights: dict[str, jax.Array]

    @classmethod
    def start(cls, network: Network) -> Self:
        """Returns the factors for the start of a chunk, when the value of each table is equal to its array."""
        tables = network.tables.of_words
        return cls(dict.fromkeys(tables, jnp.ones(())), jnp.ones(()), dict.fromkeys(tables, jnp.zeros(())))

    def update(
        self, params: Params, average: Params | None, updates: Params, ids: dict[str, Any], factor: Any, decay: Any
    ) -> tuple[Self, Params, Params | None]:
        """Computes params = factor * params + updates and average = decay * average + (1 - decay) * params.

        The factor multiplies only the tables in `scales` that are matrices.

        Args:
            params: The parameters. For tables, these are the arrays instead of the actual values.
            average: The running average of the parameters, or None if there is no average.
            updates: The updates, structured like the result of `row_gradients`.
            ids: The indices of the updated rows of each table, by table name; see `row_gradients`.
            factor: The factor by which weight decay multiplies matrix-valued tables in this update.
            decay: The decay of the average in this update.

        Returns:
            The new factors, parameters and average.
        """
        scales = {name: c * factor if params[name].ndim > 1 else c for name, c in self.scales.items()}
        updates = updates | {name: updates[name] / scales[name] for name in ids}
        params = add_rows(params, updates, ids)
        if average is None:
            return dataclasses.replace(self, scales=scales), params, None
        mixed = {name: mix(decay, average[name], params[name]) for name in params if name not in ids}
        tables = {name: average[name] for name in ids}
        corrections = {name: -self.average_weights[name] / self.average_scale * updates[name] for name in ids}
        weights = {name: decay * old + (1 - decay) * scales[name] for name, old in self.average_weights.items()}
        deferred = type(self)(scales, decay * self.average_scale, weights)
        return deferred, params, mixed | add_rows(tables, corrections, ids)

    def apply(self, params: Params, average: Params | None) -> tuple[Params, Params | None]:
        """Applies the deferred factors, and returns the actual values of the parameters and of the average."""
        if average is not None:
            weights = self.average_weights.items()
            average = average | {name: self.average_scale * average[name] + w * params[name] for name, w in weights}
        return params | {name: c * params[name] for name, c in self.scales.items() if params[name].ndim > 1}, average


def mix(decay: Any, old: Any, new: Any) -> Any:
    """Returns decay * old + (1 - decay) * new, leaf by leaf."""
    return jax.tree.map(lambda a, b: decay * a + (1 - decay) * b, old, new)


def add_rows(params: Params, updates: Params, ids: dict[str, Any]) -> Params:
    """Adds updates to parameters, where the updates of tables cover only some rows. Repeated rows are summed.

    Each table is updated with a single scatter, because XLA may copy the whole table before a second scatter.
    """

    def add(name: str) -> Any:
        if name in ids:
            return params[name].at[ids[name]].add(updates[name], mode='drop')
        return jax.tree.map(jnp.add, params[name], updates[name])

    return {name: add(name) for name in params}
