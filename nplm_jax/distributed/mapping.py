"""Mapping of a per-device loss over the named axes of a mesh."""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import jax
from jax.sharding import Mesh, PartitionSpec

from nplm_jax.nn import AxisName, Microbatch

Loss = Callable[..., tuple[Any, Any]]
DATA, MODEL = 'data', 'model'


class MeshAxes(NamedTuple):
    """The named axes over which the batch and the words are divided; None where one device has them all."""

    data: AxisName = None
    model: str | None = None

    def of_microbatch(self, number: Any, num_microbatches: int) -> Self:
        """Returns the axes of one of the microbatches of a batch."""
        assert not isinstance(self.data, Microbatch)
        return self if num_microbatches == 1 else self._replace(data=Microbatch(self.data, number, num_microbatches))


NO_AXES = MeshAxes()


def shard_mapped(
    loss: Loss, mesh: Mesh, axes: MeshAxes, specs_of: Callable[[Any], Any], params: Any, *args: Any
) -> tuple[Any, Any]:
    """Returns the mean of a loss over the batch and its carry, by `jax.shard_map`; see `MeshSharding.map_loss`."""

    def device_loss(params: Any, *args: Any) -> tuple[Any, Any]:
        if axes.data is None:
            return loss(params, *args, axes=axes)
        # Marks the parameters as used by each part of the batch, so that their gradients are summed over the parts.
        params = jax.tree.map(lambda p: jax.lax.pcast(p, axes.data, to='varying'), params)
        mean, carry = loss(params, *args, axes=axes)
        return jax.lax.pmean(mean, axes.data), carry

    batch, replicated = PartitionSpec(axes.data), PartitionSpec()
    in_specs = (specs_of(params), *[batch] * (len(args) - 1), replicated)
    mapped = jax.shard_map(device_loss, mesh=mesh, in_specs=in_specs, out_specs=(replicated, batch))
    return mapped(params, *args)


def pmapped(loss: Loss, devices: list[jax.Device], params: Any, *args: Any) -> tuple[Any, Any]:
    """Returns what `shard_mapped` does, by `jax.pmap`."""

    def device_loss(params: Any, *args: Any) -> tuple[Any, Any]:
        mean, carry = loss(params, *args, axes=MeshAxes(DATA))
        return jax.lax.pmean(mean, DATA), carry

    *batch, replicated = args
    in_axes = (None, *(0 for _ in batch), None)
    mapped = jax.pmap(device_loss, DATA, in_axes=in_axes, out_axes=(None, 0), devices=devices)
    shards = jax.tree.map(lambda x: x.reshape(len(devices), -1, *x.shape[1:]), batch)
    mean, carry = mapped(params, *shards, replicated)
    return mean, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), carry)
