"""Defines the device mesh, and the sharding of a training state over the mesh (the paper's section 3).

With data parallelism, each row of the mesh processes a part of the batch. Unlike in section 3.1 of the paper, updates
are synchronous. With parameter parallelism (section 3.2), each column of the mesh owns a part of the output words, with
the corresponding rows of U, W and b.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

Tree = TypeVar('Tree')
DATA, MODEL = 'data', 'model'  # mesh axes: the batch is divided over DATA, output words over MODEL
PADDING_BIAS = -1e9  # bias of the words that pad V to a multiple of the model axis size; its exp and gradient are 0


@dataclasses.dataclass(frozen=True)
class MeshSharding:
    """The placement of a training state on the devices of a mesh.

    Without a mesh, all arrays are on a single device. In this case, `shard` and `put` move arrays to this device, and
    `replicate` and `unshard` return arrays unchanged. The module `mapping` maps functions over devices, and the module
    `constraints` constrains arrays inside jit.

    Attributes:
        mesh: A mesh with the axis `data`, the axis `model` or both. None for a single device.
        mode: `shard_map`, or `pmap` for data-parallel training with jax.pmap.
        paddings: The name and the padding value of each parameter with one row per output word; see `paddings_of`. The
            rows of these parameters and of their optimizer state are divided over the model axis.
        batch_axes: The mesh axes over which the batch is divided. For sparse updates, these are all axes of the mesh.
    """

    mesh: Mesh | None = None
    mode: str = 'shard_map'
    paddings: tuple[tuple[str, float], ...] = ()
    batch_axes: tuple[str, ...] = (DATA,)

    @property
    def devices(self) -> list[jax.Device]:
        """The devices of the mesh, or the first local device if there is no mesh."""
        return jax.local_devices()[:1] if self.mesh is None else self.mesh.devices.flatten().tolist()

    @property
    def platform(self) -> str:
        """The platform of the devices, such as `cpu`. Descriptions of absent devices also have a platform."""
        return self.devices[0].platform

    def shard(self, tree: Tree) -> Tree:
        """Pads an unsharded training state for the mesh and places it on the devices according to `partition_specs`."""
        if (mesh := self.mesh) is None:
            return jax.tree.map(jnp.asarray, tree)

        def put(path: tuple[Any, ...], leaf: Any, axis: str, spec: PartitionSpec) -> jax.Array:
            full = np.asarray(leaf)
            rows, value = _padding(path, full, axis, self)

            def part(index: tuple[slice, ...] | None) -> np.ndarray:
                assert index is not None
                own = full[index]
                if not rows:
                    return own
                first, stop, _ = index[0].indices(len(full) + rows)
                return np.pad(own, [(0, stop - first - len(own))] + [(0, 0)] * (own.ndim - 1), constant_values=value)

            shape = (len(full) + rows, *full.shape[1:]) if rows else full.shape
            return jax.make_array_from_callback(shape, NamedSharding(mesh, spec), part)

        return jax.tree_util.tree_map_with_path(put, tree, self.row_axes(tree), self.partition_specs(tree))

    def unshard(self, tree: Tree, num_rows: int) -> Tree:
        """Inverts `shard`. Every process gets the complete arrays without padding.

        Arrays that are divided over devices become NumPy arrays, so that no device has to hold them in full. For a
        replicated array, the copy on the first device of this process is returned.
        """
        if self.mesh is None:
            return tree

        def take(leaf: jax.Array, axis: str) -> Any:
            if leaf.is_fully_replicated:
                return leaf.addressable_data(0)
            return fetch(leaf)[: num_rows if axis == MODEL else None]

        return jax.tree.map(take, tree, self.row_axes(tree))

    def replicate(self, tree: Tree) -> Tree:
        """Copies each array to every device."""
        if self.mesh is None:
            return tree
        sharding = NamedSharding(self.mesh, PartitionSpec())
        return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf), sharding), tree)

    def put(self, numbers: Any) -> Any:
        """Copies numbers to every device. Unlike `replicate`, does not check that they are equal in all processes."""
        if self.mesh is None:
            return jax.device_put(numbers)
        sharding, devices = NamedSharding(self.mesh, PartitionSpec()), self.mesh.local_devices

        def put(number: Any) -> jax.Array:
            copies = [jax.device_put(number, device) for device in devices]
            return jax.make_array_from_single_device_arrays(np.shape(number), sharding, copies)

        return jax.tree.map(put, numbers)

    def partition_specs(self, tree: Any) -> Any:
        """Returns a PartitionSpec for each array in a tree of parameters or in a training state."""
        assert self.mesh is not None
        mesh_axes = self.mesh.axis_names

        def spec(axis: str) -> PartitionSpec:
            present = tuple(name for name in (self.batch_axes if axis == DATA else (axis,)) if name in mesh_axes)
            return PartitionSpec(present) if present else PartitionSpec()

        return jax.tree.map(spec, self.row_axes(tree))

    def row_axes(self, tree: Any) -> Any:
        """Determines the axis over which the rows of each array are divided.

        An array of the optimizer state is assigned to the parameter whose path is the longest suffix of its own path.
        It is divided in the same way as this parameter if both have the same number of rows.

        Returns:
            For each array, DATA (which stands for `batch_axes`), MODEL, or '' if the array is replicated.
        """
        parameters = jax.tree_util.tree_leaves_with_path(getattr(tree, 'params', tree))
        shapes, tables = {path: jnp.shape(leaf) for path, leaf in parameters}, dict(self.paddings)

        def axis(path: tuple[Any, ...], leaf: Any) -> str:
            field = _field(path)
            if field == 'carry':  # one row per stream of the batch
                return DATA
            own = next((path[i:] for i in range(len(path)) if path[i:] in shapes), ())
            is_table = field != 'output_state' and len(own) == 1 and own[0].key in tables
            return MODEL if is_table and jnp.shape(leaf)[:1] == shapes[own][:1] else ''

        return jax.tree_util.tree_map_with_path(axis, tree)


ONE_DEVICE = MeshSharding()


def make_mesh(data: int, model: int, devices: Sequence[jax.Device] = ()) -> Mesh:
    """Returns a mesh of the first data * model devices, which has no axes of size 1.

    Args:
        data: The size of the data axis.
        model: The size of the model axis.
        devices: The devices to choose from. If empty, `jax.devices()` are used.
    """
    axes = {name: size for name, size in ((DATA, data), (MODEL, model)) if size > 1} or {DATA: 1}
    types, used = (AxisType.Auto,) * len(axes), (devices or jax.devices())[: data * model]
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=types, devices=used)


def scoring_sharding(sharding: MeshSharding, is_shared: bool = False) -> MeshSharding:
    """Returns the sharding with which a trained model scores words.

    It is the training sharding, unless the devices belong to several processes that score words independently. In that
    case, scored words are divided over the devices of this process.

    Args:
        sharding: The training sharding.
        is_shared: Whether all processes score the same words at the same time.
    """
    if (mesh := sharding.mesh) is None or is_shared or not mesh.is_multi_process:
        return sharding
    devices = mesh.local_devices
    return MeshSharding(make_mesh(len(devices), 1, devices)) if len(devices) > 1 else ONE_DEVICE


def num_parts(sharding: MeshSharding) -> int:
    """Returns the size of the data axis, over which scored words are divided, or 1 if there is no such axis."""
    return 1 if sharding.mesh is None else sharding.mesh.shape.get(DATA, 1)


def pad(tree: Tree, sharding: MeshSharding) -> Tree:
    """Pads the tables of a training state, so that the number of rows is a multiple of the size of the model axis.

    See `MeshSharding.paddings` for the padding values.
    """
    if sharding.mesh is None:
        return tree

    def pad_rows(path: tuple[Any, ...], leaf: jax.Array, axis: str) -> jax.Array:
        rows, value = _padding(path, leaf, axis, sharding)
        if not rows:
            return leaf
        # Do not pass constant_values. If a program pads arrays with two different values, XLA's partitioner uses the
        # same value for both.
        padded = jnp.pad(leaf, [(0, rows)] + [(0, 0)] * (leaf.ndim - 1))
        is_row = jnp.arange(len(padded)) < len(leaf)
        return jnp.where(is_row.reshape(-1, *[1] * (leaf.ndim - 1)), padded, value) if value else padded

    return jax.tree_util.tree_map_with_path(pad_rows, tree, sharding.row_axes(tree))


def unpad(params: dict[str, Any], sharding: MeshSharding, num_rows: int) -> dict[str, Any]:
    """Removes the rows that `pad` added, inside jit. The remaining rows stay divided over devices."""
    if sharding.mesh is None:
        return params
    return params | {name: params[name][:num_rows] for name, _ in sharding.paddings if name in params}


def fetch(array: jax.Array) -> np.ndarray:
    """Returns the complete array in every process. In single-process runs, no device has to hold the whole array."""
    if not array.is_fully_addressable:
        assert isinstance(array.sharding, NamedSharding)
        array = all_gather(array, array.sharding.mesh)
    if array.is_fully_replicated:
        return np.asarray(array.addressable_data(0))
    full = np.empty(array.shape, array.dtype)  # np.asarray would cache a second copy in the array
    for shard in array.addressable_shards:
        if shard.replica_id == 0:
            full[shard.index] = shard.data
    return full


def read_rows(read: Callable[[int, int], np.ndarray], num_rows: int, width: int, sharding: MeshSharding) -> jax.Array:
    """Reads rows, such as rows of a file, and copies all of them to every device.

    Each process reads only a share of the rows for each of its devices. The devices then exchange these shares.

    Args:
        read: A function that takes `start` and `stop`, and returns the rows from `start` up to but excluding `stop`.
        num_rows: The number of rows.
        width: The length of a row.
        sharding: The sharding, whose devices receive the rows.

    Returns:
        The rows, padded with copies of the last row to a multiple of the number of devices.
    """
    if (mesh := sharding.mesh) is None:
        return jnp.asarray(read(0, num_rows))
    share = -(-num_rows // mesh.size)

    def read_share(index: tuple[slice, ...] | None) -> np.ndarray:
        assert index is not None
        first = index[0].start or 0
        rows = read(min(first, num_rows - 1), min(first + share, num_rows))
        return np.pad(rows, ((0, share - len(rows)), (0, 0)), mode='edge')

    by_rows = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    shares = jax.make_array_from_callback((share * mesh.size, width), by_rows, read_share)
    return all_gather(shares, mesh)


def _padding(path: tuple[Any, ...], leaf: Any, axis: str, sharding: MeshSharding) -> tuple[int, float]:
    """Returns how many rows pad an array to a multiple of the size of the model axis, and the padding value."""
    assert sharding.mesh is not None
    if axis != MODEL or MODEL not in sharding.mesh.axis_names:
        return 0, 0.0
    value = 0.0 if _field(path) == 'opt_state' else dict(sharding.paddings)[path[-1].key]
    return -len(leaf) % sharding.mesh.shape[MODEL], value


def _field(path: tuple[Any, ...]) -> str:
    """Returns the field of the training state that contains an array, or '' for a tree of parameters."""
    return path[0].name if isinstance(path[0], jax.tree_util.GetAttrKey) else ''


@functools.partial(jax.jit, static_argnums=1)
def all_gather(tree: Tree, mesh: Mesh) -> Tree:
    """Replicates arrays on every device of a mesh, inside or outside jit."""
    return jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, PartitionSpec()))
