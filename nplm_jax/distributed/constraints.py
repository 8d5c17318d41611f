"""Constrains the sharding and the memory layout of arrays inside jit."""

import functools
from typing import Any

import jax
from jax.experimental.layout import Layout, with_layout_constraint
from jax.sharding import NamedSharding, PartitionSpec

from nplm_jax.distributed.sharding import DATA, MODEL, MeshSharding, Tree, all_gather


def constrain(tree: Tree, sharding: MeshSharding) -> Tree:
    """Constrains each array of a training state to the sharding that `MeshSharding.shard` gives it."""
    if sharding.mesh is None:
        return tree
    shardings = jax.tree.map(functools.partial(NamedSharding, sharding.mesh), sharding.partition_specs(tree))
    return jax.lax.with_sharding_constraint(tree, shardings)


def constrain_replicated(tree: Tree, sharding: MeshSharding) -> Tree:
    """Constrains each array to be replicated on every device."""
    return tree if sharding.mesh is None else all_gather(tree, sharding.mesh)


def constrain_examples(tree: Tree, sharding: MeshSharding) -> Tree:
    """Constrains arrays with one row per example to be divided over the data axis and replicated over other axes."""
    if sharding.mesh is None:
        return tree
    spec = PartitionSpec(DATA) if DATA in sharding.mesh.axis_names else PartitionSpec()
    return jax.lax.with_sharding_constraint(tree, NamedSharding(sharding.mesh, spec))


def vocab_minor_layout(tree: Tree, sharding: MeshSharding) -> Tree:
    """Lays out U, W and their optimizer state such that words are the last axis in memory, inside a loop on a CPU.

    The matrix products of the output layer are fastest with this layout; see `outputs.blockwise`. Shapes and values do
    not change, but the loop makes an extra copy of these arrays. Do not apply the constraint to the results of a jitted
    function, because its callers would have to know the layout.
    """
    if sharding.platform != 'cpu':
        return tree
    axes = sharding.row_axes(tree)
    if sharding.mesh is None:
        return _vocab_minor(tree, axes)
    specs = sharding.partition_specs(tree)  # for a map over the mesh, without which XLA would first gather the arrays
    lay_out = functools.partial(_vocab_minor, axes=axes)
    return jax.shard_map(lay_out, mesh=sharding.mesh, in_specs=(specs,), out_specs=specs)(tree)


def _vocab_minor(tree: Tree, axes: Any) -> Tree:
    def lay_out(leaf: jax.Array, axis: str) -> jax.Array:
        return with_layout_constraint(leaf, Layout((1, 0))) if axis == MODEL and leaf.ndim == 2 else leaf

    return jax.tree.map(lay_out, tree, axes)
