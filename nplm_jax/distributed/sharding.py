"""Devices as a mesh, which array lies where on it, and one device's loss mapped over all of them (section 3).

Data-parallel (section 3.1, but synchronous): each row of the mesh takes its part of the batch. Parameter-parallel
(section 3.2): each column owns as many output words, the rows of U, W and b.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.layout import Layout as InMemory
from jax.experimental.layout import with_layout_constraint
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from nplm_jax.config import Settings
from nplm_jax.utils.errors import require

Tree = TypeVar('Tree')
DATA, MODEL = 'data', 'model'
# Along which axis of the mesh the rows of a parameter, and of its optimizer state, lie; all else is on every device.
PARTITION_RULES = {'U_VxK': MODEL, 'W_VxP': MODEL, 'b_V': MODEL}
PADDING_BIAS = -1e9  # b of the words that pad |V| to the mesh: exp of it is 0, and so are their gradients


class Axes(NamedTuple):
    """The named axes over which the batch and the words are shared out; None where one device has them all."""

    data: str | tuple[str, ...] | None = None
    model: str | None = None


NO_AXES = Axes()


@dataclasses.dataclass(frozen=True)
class Layout:
    """How arrays and the loss lie on `mesh`; without one everything stays as it is, on one device."""

    mesh: Mesh | None = None
    mode: str = 'shard_map'

    def map(self, loss: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
        """A mean over the batch from one device's part: `loss(params, *batch, given, axes=...)`.

        batch: trees of arrays whose first axis is shared out; `given`: what every device has whole, beside `params`.
        The loss, a number or a tree of them, comes with arrays along the batch: what each of its streams carries on
        to the next one; None where nothing is carried.
        To be differentiated as a whole, from outside: gradients taken inside and averaged would be wrong.
        """
        if self.mesh is None:
            return loss
        if self.mode == 'pmap':
            return functools.partial(_pmapped, loss, self.mesh.devices.flatten().tolist())
        axes = Axes(*(name if name in self.mesh.axis_names else None for name in (DATA, MODEL)))
        return functools.partial(_shard_mapped, loss, self.mesh, axes, lambda params: specs(params, self.mesh))

    def map_few(self, loss: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
        """The same for params of a few rows, which every device has whole: all devices of the mesh share the batch."""
        if self.mesh is None or self.mode == 'pmap':
            return self.map(loss)
        return functools.partial(_shard_mapped, loss, self.mesh, Axes(self.mesh.axis_names), lambda _: PartitionSpec())

    def put(self, tree: Tree) -> Tree:
        """Arrays of one device -> padded to the mesh and spread over it, each as `PARTITION_RULES` says."""
        if self.mesh is None:
            return tree
        padded = jax.tree_util.tree_map_with_path(self._pad, tree)
        return jax.tree.map(lambda leaf, place: jax.device_put(np.asarray(leaf), place), padded, self._shardings(tree))

    def get(self, tree: Tree, num_words: int) -> Tree:
        """What `put` was given: whole arrays on the first device of this process, without the padding."""
        if self.mesh is None:
            return tree
        whole = _replicate(tree, self.mesh)

        def cut(path, leaf):
            one = jax.device_put(leaf.addressable_data(0), jax.local_devices()[0])
            return one[:num_words] if _name(path) in PARTITION_RULES else one

        return jax.tree_util.tree_map_with_path(cut, whole)

    def everywhere(self, tree: Tree) -> Tree:
        """A copy of each array on every device."""
        if self.mesh is None:
            return tree
        place = NamedSharding(self.mesh, PartitionSpec())
        return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf), place), tree)

    def constrain(self, tree: Tree) -> Tree:
        """Inside jit: keeps each array where `put` would have it."""
        return tree if self.mesh is None else jax.lax.with_sharding_constraint(tree, self._shardings(tree))

    def replicate(self, tree: Tree) -> Tree:
        """Inside jit: each array whole on every device."""
        return tree if self.mesh is None else _replicate(tree, self.mesh)

    def words_last(self, tree: Tree) -> Tree:
        """Inside a loop in jit: U and W, and what an optimizer keeps of them, with the words last in memory, on a CPU.

        The output layer's products are fastest so there (`softmax.mean_nll`). Shapes and values stay as they are; the
        loop holds these arrays once more than the program that it is in. Not for what a jitted function returns: its
        next caller would have to know.
        """
        if jax.default_backend() != 'cpu':
            return tree
        if self.mesh is None:
            return _words_last(tree)
        where = specs(tree, self.mesh)  # mapped, as XLA would gather a whole array to lay it out
        return jax.shard_map(_words_last, mesh=self.mesh, in_specs=(where,), out_specs=where)(tree)

    def _pad(self, path, leaf: jax.Array) -> jax.Array:
        if (axis := PARTITION_RULES.get(_name(path))) not in self.mesh.axis_names:
            return leaf
        of_optimizer = any(getattr(key, 'name', '') == 'opt_state' for key in path)
        value = PADDING_BIAS if _name(path) == 'b_V' and not of_optimizer else 0
        missing = -len(leaf) % self.mesh.shape[axis]
        return jnp.pad(leaf, [(0, missing)] + [(0, 0)] * (leaf.ndim - 1), constant_values=value)

    def _shardings(self, tree: Any) -> Any:
        return jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), specs(tree, self.mesh))


ONE_DEVICE = Layout()


def build(settings: Settings) -> Layout:
    """The layout that `parallel.*` asks for; ONE_DEVICE for 1 x 1.

    Raises: BadInput when there are too few devices, or the batch cannot be shared out evenly.
    """
    wanted, there = settings.parallel, jax.device_count()
    data, model = wanted.data, wanted.model
    if data == -1:
        require(model <= there, 'parallel.model', model, f'must be {there} or less, the devices there are')
        data = there // model
    if model == -1:
        require(data <= there, 'parallel.data', data, f'must be {there} or less, the devices there are')
        model = there // data
    times = f'times parallel.model={model} must be'
    require(data * model <= there, 'parallel.data', data, f'{times} {there} or less, the devices there are')
    processes = jax.process_count()
    all_used = processes == 1 or data * model == there
    require(all_used, 'parallel.data', data, f'{times} {there}, all devices of the {processes} processes')
    size = settings.train.batch_size
    share = data * model if settings.output.moves_few_rows else data
    require(size % share == 0, 'train.batch_size', size, f'must be a multiple of {share}, the devices that share it')
    streams = settings.streams
    even = not settings.model.is_recurrent or streams % data == 0
    allowed = f'must be a divisor of {streams}, the streams of train.batch_size / train.bptt_length'
    require(even, 'parallel.data', data, allowed)
    if wanted.mode == 'pmap':
        require(model == 1, 'parallel.model', model, 'must be 1 with parallel.mode=pmap, which is data-parallel only')
        require(processes == 1, 'parallel.mode', 'pmap', f'must be shard_map for {processes} processes')
    return ONE_DEVICE if data * model == 1 else Layout(make_mesh(data, model), wanted.mode)


def make_mesh(data: int, model: int) -> Mesh:
    """A mesh of the first data * model devices; an axis of one device is left out, and nothing is sent along it."""
    axes = {name: size for name, size in ((DATA, data), (MODEL, model)) if size > 1} or {DATA: 1}
    types, devices = (AxisType.Auto,) * len(axes), jax.devices()[: data * model]
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=types, devices=devices)


def specs(tree: Any, mesh: Mesh) -> Any:
    """A PartitionSpec for each array of a tree of parameters or of training state."""

    def spec(path, _):
        carried = path and getattr(path[0], 'name', '') == 'carry'  # by each stream of the batch
        axis = DATA if carried else PARTITION_RULES.get(_name(path))
        return PartitionSpec(axis) if axis in mesh.axis_names else PartitionSpec()

    return jax.tree_util.tree_map_with_path(spec, tree)


def _words_last(tree):
    def lay_out(path, leaf):
        is_matrix = _name(path) in PARTITION_RULES and leaf.ndim == 2
        return with_layout_constraint(leaf, InMemory((1, 0))) if is_matrix else leaf

    return jax.tree_util.tree_map_with_path(lay_out, tree)


def _name(path) -> str:
    return getattr(path[-1], 'name', '') if path else ''


def _shard_mapped(loss, mesh, axes, specs_of, params, *batch_and_given):
    def of_one_device(params, *batch_and_given):
        if axes.data is None:
            return loss(params, *batch_and_given, axes=axes)
        # Marks the parameters as used by each part of the batch: that their gradients are summed over it follows.
        params = jax.tree.map(lambda p: jax.lax.pcast(p, axes.data, to='varying'), params)
        mean, carry = loss(params, *batch_and_given, axes=axes)
        return jax.lax.pmean(mean, axes.data), carry

    batch, everywhere = PartitionSpec(axes.data), PartitionSpec()
    where = (specs_of(params), *[batch] * (len(batch_and_given) - 1), everywhere)
    mapped = jax.shard_map(of_one_device, mesh=mesh, in_specs=where, out_specs=(everywhere, batch))
    return mapped(params, *batch_and_given)


def _pmapped(loss, devices, params, *batch_and_given):
    def of_one_device(params, *batch_and_given):
        mean, carry = loss(params, *batch_and_given, axes=Axes(DATA))
        return jax.lax.pmean(mean, DATA), carry

    *batch, given = batch_and_given
    in_axes = (None, *(0 for _ in batch), None)
    mapped = jax.pmap(of_one_device, DATA, in_axes=in_axes, out_axes=(None, 0), devices=devices)
    mean, carried = mapped(params, *jax.tree.map(lambda x: x.reshape(len(devices), -1, *x.shape[1:]), batch), given)
    return mean, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), carried)


@functools.partial(jax.jit, static_argnums=1)
def _replicate(tree, mesh):
    return jax.lax.with_sharding_constraint(tree, NamedSharding(mesh, PartitionSpec()))
