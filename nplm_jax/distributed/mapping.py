"""Maps functions over the named axes of a device mesh."""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
from jax.sharding import Mesh, PartitionSpec

from nplm_jax.distributed.sharding import DATA, MODEL, MeshSharding

Loss = Callable[..., tuple[Any, Any]]
Result = TypeVar('Result')


class MeshAxes(NamedTuple):
    """The names of the mesh axes over which the batch (`data`) and the output words (`model`) are divided.

    None means that the batch or the words are not divided.
    """

    data: str | tuple[str, ...] | None = None
    model: str | None = None


NO_AXES = MeshAxes()


def map_loss(loss: Loss, sharding: MeshSharding) -> Loss:
    """Maps a loss that each device computes for its part of a batch over the mesh.

    The signature of the loss is `loss(params, *batch, replicated, axes=...) -> (mean, carry)`. To compute gradients,
    differentiate the mapped loss. Averaging the gradients of the devices' losses would give wrong results.

    Args:
        loss: A function of the parameters, of trees of arrays whose first axis is divided over devices, and of one
            replicated tree. It returns a mean over the device's part of the batch (a number or a tree of numbers), and
            arrays with one row per stream.
        sharding: The sharding of the parameters and the batch.

    Returns:
        A function that takes the same arguments except `axes`, as arrays on the mesh. Without a mesh, the result is
        `loss` itself.
    """
    if (mesh := sharding.mesh) is None:
        return loss
    if sharding.mode == 'pmap':
        return functools.partial(_pmapped, loss, sharding.devices)
    data = tuple(axis for axis in sharding.batch_axes if axis in mesh.axis_names)
    if MODEL in mesh.axis_names and MODEL not in data:
        assert sharding.paddings, 'paddings must be set; otherwise, each device would treat all rows as its own'
        return functools.partial(_shard_mapped, loss, mesh, MeshAxes(data or None, MODEL), sharding.partition_specs)
    return functools.partial(_shard_mapped, loss, mesh, MeshAxes(data or None), lambda _: PartitionSpec())


def map_parts(
    function: Callable[..., Result], sharding: MeshSharding, in_axes: Sequence[int | None], out_axis: int
) -> Callable[..., Result]:
    """Divides arrays into parts over all mesh axes except MODEL, and applies a function to each part, inside jit.

    The array axes are specified as in `jax.vmap`. XLA divides the work for each part over the model axis according to
    the sharding of the parameters.

    Args:
        function: A function of trees of arrays, which is applied to each part independently.
        sharding: A sharding with a mesh.
        in_axes: For each argument, the array axis to divide, or None if the argument is replicated.
        out_axis: The axis along which the results of the parts are concatenated.
    """
    assert sharding.mesh is not None
    names, axes = tuple(name for name in sharding.mesh.axis_names if name != MODEL), (*in_axes, out_axis)
    *specs, out_specs = (PartitionSpec() if i is None else PartitionSpec(*[None] * i, names) for i in axes)
    mesh, manual = sharding.mesh, frozenset(names)
    return jax.shard_map(
        function, mesh=mesh, in_specs=tuple(specs), out_specs=out_specs, check_vma=False, axis_names=manual
    )


def mesh_context(sharding: MeshSharding) -> contextlib.AbstractContextManager[Any]:
    """Returns a context for tracing, in which `jax.sharding.get_abstract_mesh` returns the mesh, if there is one."""
    return jax.sharding.use_abstract_mesh(mesh.abstract_mesh) if (mesh := sharding.mesh) else contextlib.nullcontext()


def _shard_mapped(
    loss: Loss, mesh: Mesh, axes: MeshAxes, specs_of: Callable[[Any], Any], params: Any, *args: Any
) -> tuple[Any, Any]:
    """Computes the mean loss over the batch, and the arrays with one row per stream, with `jax.shard_map`."""

    def device_loss(params: Any, *args: Any) -> tuple[Any, Any]:
        if axes.data is None:
            return loss(params, *args, axes=axes)
        # If the parameters are marked as varying over the data axes, JAX sums their gradients over the parts.
        params = jax.tree.map(lambda p: jax.lax.pcast(p, axes.data, to='varying'), params)
        mean, carry = loss(params, *args, axes=axes)
        return jax.lax.pmean(mean, axes.data), carry

    batch, replicated = PartitionSpec(axes.data), PartitionSpec()
    in_specs = (specs_of(params), *[batch] * (len(args) - 1), replicated)
    mapped = jax.shard_map(device_loss, mesh=mesh, in_specs=in_specs, out_specs=(replicated, batch))
    return mapped(params, *args)


def _pmapped(loss: Loss, devices: list[jax.Device], params: Any, *args: Any) -> tuple[Any, Any]:
    """Computes the same results as `_shard_mapped`, but with `jax.pmap`."""

    def device_loss(params: Any, *args: Any) -> tuple[Any, Any]:
        mean, carry = loss(params, *args, axes=MeshAxes(DATA))
        return jax.lax.pmean(mean, DATA), carry

    *batch, replicated = args
    in_axes = (None, *(0 for _ in batch), None)
    mapped = jax.pmap(device_loss, DATA, in_axes=in_axes, out_axes=(None, 0), devices=devices)
    shards = jax.tree.map(lambda x: x.reshape(len(devices), -1, *x.shape[1:]), batch)
    mean, carry = mapped(params, *shards, replicated)
    return mean, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), carry)
