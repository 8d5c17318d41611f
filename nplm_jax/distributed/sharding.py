"""Device mesh and sharding of a training state (the paper's section 3).

Data-parallel (section 3.1, but synchronous): each row of the mesh computes a part of the batch. Parameter-parallel
(section 3.2): each column owns a part of the output words, that is their rows of U, W and b.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Layout, with_layout_constraint
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from nplm_jax.distributed.mapping import DATA, MODEL, Loss, MeshAxes, pmapped, shard_mapped

Tree = TypeVar('Tree')
Result = TypeVar('Result')
PADDING_BIAS = -1e9  # bias of padding words (V is padded to a multiple of the model axis): exp gives 0, no gradient


@dataclasses.dataclass(frozen=True)
class MeshSharding:
    """Shards a training state over a mesh of devices, and maps a loss over it.

    Without a mesh every method returns its arguments unchanged, on one device.

    Attributes:
        mesh: Devices with the axes `data`, `model` or both.
        mode: `shard_map`, or `pmap` for data-parallel training by jax.pmap.
        paddings: Each parameter with one row per output word, and the number that pads its rows: `paddings_of`.
            Their rows, and those of their optimizer state, are divided over the model axis.
        batch_axes: The axes over which the batch is divided: of sparse updates, all of the mesh.
    """

    mesh: Mesh | None = None
    mode: str = 'shard_map'
    paddings: tuple[tuple[str, float], ...] = ()
    batch_axes: tuple[str, ...] = (DATA,)

    @property
    def devices(self) -> list[jax.Device]:
        """Its devices; without a mesh, the one that JAX computes on."""
        return jax.local_devices()[:1] if self.mesh is None else self.mesh.devices.flatten().tolist()

    @property
    def platform(self) -> str:
        """The platform of its devices, such as `cpu`: that of a chip which a mesh describes and this machine lacks."""
        return self.devices[0].platform

    @property
    def of_process(self) -> 'MeshSharding':
        """The sharding of what each process computes by itself: its own devices of the mesh divide the examples."""
        devices = [] if self.mesh is None else self.mesh.local_devices
        return MeshSharding(make_mesh(len(devices), 1, devices)) if len(devices) > 1 else ONE_DEVICE

    def map_parts(
        self, function: Callable[..., Result], in_axes: Sequence[int | None], out_axis: int
    ) -> Callable[..., Result]:
        """Inside jit: maps a function over the devices, of which each computes a part. See `jax.vmap`.

        Args:
            function: A function of trees of arrays that needs nothing from other devices.
            in_axes: For each argument the axis of its arrays that the devices divide; None where each has it in full.
            out_axis: The axis of its result that they divide.
        """
        assert self.mesh is not None
        over_all, axes = self.mesh.axis_names, (*in_axes, out_axis)
        *specs, out_specs = (PartitionSpec() if i is None else PartitionSpec(*[None] * i, over_all) for i in axes)
        return jax.shard_map(function, mesh=self.mesh, in_specs=tuple(specs), out_specs=out_specs, check_vma=False)

    def map_loss(self, loss: Loss) -> Loss:
        """Maps a per-device loss, `loss(params, *batch, replicated, axes=...) -> (mean, carry)`, over the mesh.

        Differentiate the mapped loss, not the per-device loss: gradients taken inside and averaged are wrong.

        Args:
            loss: A function of the parameters, of trees of arrays whose first axis is divided over the devices, and of
                one tree that every device has in full. It returns a mean over its part of the batch (a number or a tree
                of numbers) and arrays with one row per stream.

        Returns:
            A function of the same arguments for arrays on the mesh, without `axes`.
        """
        if self.mesh is None:
            return loss
        if self.mode == 'pmap':
            return functools.partial(pmapped, loss, self.devices)
        axes = MeshAxes(*(name if name in self.mesh.axis_names else None for name in (DATA, MODEL)))
        assert self.paddings or axes.model is None, 'the loss would take all rows for those of one device'
        return functools.partial(shard_mapped, loss, self.mesh, axes, self.partition_specs)

    def map_sparse_loss(self, loss: Loss) -> Loss:
        """Maps a loss of gathered rows, which every device has in full: the batch is divided over all devices."""
        if self.mesh is None or self.mode == 'pmap':
            return self.map_loss(loss)
        return functools.partial(
            shard_mapped, loss, self.mesh, MeshAxes(self.mesh.axis_names), lambda _: PartitionSpec()
        )

    def shard(self, tree: Tree) -> Tree:
        """Pads a training state on one device to the mesh, and shards it by `partition_specs`."""
        if self.mesh is None:
            return tree
        padded = jax.tree_util.tree_map_with_path(self._pad, tree, self._axes(tree))
        shardings = self._shardings(tree)
        return jax.tree.map(lambda leaf, sharding: jax.device_put(np.asarray(leaf), sharding), padded, shardings)

    def shapes(self, tree: Tree) -> Tree:
        """Returns the shapes, types and shardings that `shard` gives a training state, without its numbers."""
        if self.mesh is None:
            return tree
        padded = jax.eval_shape(lambda t: jax.tree_util.tree_map_with_path(self._pad, t, self._axes(t)), tree)
        return jax.tree.map(
            lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding),
            padded,
            self._shardings(padded),
        )

    def unshard(self, tree: Tree, num_rows: int) -> Tree:
        """Undoes `shard`: returns full arrays on this process's first device, without the padding."""
        if self.mesh is None:
            return tree

        def take(leaf: jax.Array, axis: str) -> jax.Array:
            full = jax.device_put(leaf.addressable_data(0), jax.local_devices()[0])
            return full[:num_rows] if axis == MODEL else full

        return jax.tree.map(take, _all_gather(tree, self.mesh), self._axes(tree))

    def replicate(self, tree: Tree) -> Tree:
        """Copies each array to every device."""
        if self.mesh is None:
            return tree
        sharding = NamedSharding(self.mesh, PartitionSpec())
        return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf), sharding), tree)

    def put(self, numbers: Any) -> Any:
        """Puts numbers on every device. Unlike `replicate`, no process waits for another one to compare them."""
        if self.mesh is None:
            return jax.device_put(numbers)
        sharding, devices = NamedSharding(self.mesh, PartitionSpec()), self.mesh.local_devices

        def put(number: Any) -> jax.Array:
            copies = [jax.device_put(number, device) for device in devices]
            return jax.make_array_from_single_device_arrays(np.shape(number), sharding, copies)

        return jax.tree.map(put, numbers)

    def read_rows(self, read: Callable[[int, int], np.ndarray], num_rows: int, width: int) -> jax.Array:
        """Returns rows on every device of which each process reads only the shares of its own devices.

        Args:
            read: Returns the rows from a first to a last one, which is left out.
            num_rows: The number of rows.
            width: The length of a row.

        Returns:
            The rows, and after them copies of the last one up to a multiple of the number of devices.
        """
        if self.mesh is None:
            return jnp.asarray(read(0, num_rows))
        share = -(-num_rows // self.mesh.size)

        def read_share(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None
            first = index[0].start or 0
            rows = read(min(first, num_rows - 1), min(first + share, num_rows))
            return np.pad(rows, ((0, share - len(rows)), (0, 0)), mode='edge')

        sharding = NamedSharding(self.mesh, PartitionSpec(self.mesh.axis_names))
        shares = jax.make_array_from_callback((share * self.mesh.size, width), sharding, read_share)
        return _all_gather(shares, self.mesh)

    def constrain(self, tree: Tree) -> Tree:
        """Inside jit: constrains each array of a training state to the sharding that `shard` gives it."""
        return tree if self.mesh is None else jax.lax.with_sharding_constraint(tree, self._shardings(tree))

    def constrain_replicated(self, tree: Tree) -> Tree:
        """Inside jit: constrains each array to be replicated on every device."""
        return tree if self.mesh is None else _all_gather(tree, self.mesh)

    def constrain_examples(self, tree: Tree) -> Tree:
        """Inside jit: constrains each array, with one row per example, to be divided over the data axis alone."""
        if self.mesh is None:
            return tree
        spec = PartitionSpec(DATA) if DATA in self.mesh.axis_names else PartitionSpec()
        return jax.lax.with_sharding_constraint(tree, NamedSharding(self.mesh, spec))

    def vocab_minor_layout(self, tree: Tree) -> Tree:
        """Inside a loop in jit, on a CPU: lays out U, W and their optimizer state with the words last in memory.

        The output layer's products are fastest with this layout (`outputs.blockwise`). Shapes and values do not change;
        the loop costs one extra copy of these arrays. Do not apply it to the results of a jitted function: its caller
        would have to know the layout.
        """
        if self.platform != 'cpu':
            return tree
        axes = self._axes(tree)
        if self.mesh is None:
            return _vocab_minor(tree, axes)
        specs = self.partition_specs(tree)  # mapped over the mesh: otherwise XLA gathers an array to lay it out
        lay_out = functools.partial(_vocab_minor, axes=axes)
        return jax.shard_map(lay_out, mesh=self.mesh, in_specs=(specs,), out_specs=specs)(tree)

    def partition_specs(self, tree: Any) -> Any:
        """Returns a PartitionSpec for each array of a tree of parameters or of a training state."""
        assert self.mesh is not None
        mesh_axes = self.mesh.axis_names

        def spec(axis: str) -> PartitionSpec:
            present = tuple(name for name in (self.batch_axes if axis == DATA else (axis,)) if name in mesh_axes)
            return PartitionSpec(present) if present else PartitionSpec()

        return jax.tree.map(spec, self._axes(tree))

    def _axes(self, tree: Any) -> Any:
        """Returns what divides the rows of each array: DATA for `batch_axes`, MODEL; '' for those in full everywhere.

        An array of the optimizer's state belongs to the parameter with whose path its own path ends (the longest such
        path), and is divided like it if it has as many rows.
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

    def _pad(self, path: tuple[Any, ...], leaf: jax.Array, axis: str) -> jax.Array:
        assert self.mesh is not None
        if axis != MODEL or MODEL not in self.mesh.axis_names:
            return leaf
        value = 0.0 if _field(path) == 'opt_state' else dict(self.paddings)[path[-1].key]
        padding = [(0, -len(leaf) % self.mesh.shape[MODEL])] + [(0, 0)] * (leaf.ndim - 1)
        return jnp.pad(leaf, padding, constant_values=value)

    def _shardings(self, tree: Any) -> Any:
        assert self.mesh is not None
        return jax.tree.map(functools.partial(NamedSharding, self.mesh), self.partition_specs(tree))


ONE_DEVICE = MeshSharding()


def make_mesh(data: int, model: int, devices: Sequence[jax.Device] = ()) -> Mesh:
    """Returns a mesh of the first data * model devices, by default JAX's. Axes of one device are left out."""
    axes = {name: size for name, size in ((DATA, data), (MODEL, model)) if size > 1} or {DATA: 1}
    types, used = (AxisType.Auto,) * len(axes), (devices or jax.devices())[: data * model]
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=types, devices=used)


def _field(path: tuple[Any, ...]) -> str:
    """Returns the field of the training state in which an array lies; '' for an array of a tree of parameters."""
    return path[0].name if isinstance(path[0], jax.tree_util.GetAttrKey) else ''


def _vocab_minor(tree: Tree, axes: Any) -> Tree:
    def lay_out(leaf: jax.Array, axis: str) -> jax.Array:
        return with_layout_constraint(leaf, Layout((1, 0))) if axis == MODEL and leaf.ndim == 2 else leaf

    return jax.tree.map(lay_out, tree, axes)


@functools.partial(jax.jit, static_argnums=1)
def _all_gather(tree: Tree, mesh: Mesh) -> Tree:
    return jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, PartitionSpec()))
