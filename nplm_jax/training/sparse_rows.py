"""Sparse updates: gathers the rows of the parameters that a sparse loss reads, and scatter-adds their updates.

Dims: V vocabulary, B batch, M features, L output rows of each example, S output rows of all examples, R rows that are
updated, with repetitions.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from nplm_jax.data.batches import Batch
from nplm_jax.distributed.constraints import constrain, constrain_examples, constrain_replicated
from nplm_jax.distributed.mapping import NO_AXES, MeshAxes, map_sparse_loss
from nplm_jax.distributed.sharding import ONE_DEVICE, MeshSharding
from nplm_jax.models.body import State, by_example
from nplm_jax.models.network import Network, body_tokens, check_targets
from nplm_jax.models.teachers import own_ids, read_with_teachers
from nplm_jax.outputs.output_layer import EMBEDDING, Gathered, Params, SparseOutputLayer
from nplm_jax.outputs.sampled import SampledSoftmax
from nplm_jax.training.deferred_decay import Scales, add_rows
from nplm_jax.training.gradients import Gradients, accumulate

CONTEXTS = 'e_SxLxM'  # the features of the context words, among the parameters per example


class Rows(NamedTuple):
    """The row numbers that one update reads, int32. The last three are what `SparseOutputLayer.rows` returns.

    Attributes:
        ids_SxL: Rows of C: the tokens of each stream.
        example_rows_BxL: Rows of the output tables that belong to each example.
        shared_S: Rows of the output tables that all examples share.
        draws: What `SparseOutputLayer.rows` knows about each example's rows, for `sparse_loss`; None for nothing.
    """

    ids_SxL: jax.Array
    example_rows_BxL: jax.Array
    shared_S: jax.Array
    draws: Any = None


def sparse_gradients(
    params: Params,
    network: Network,
    batch: Batch,
    carry: State,
    key: jax.Array,
    sharding: MeshSharding,
    num_microbatches: int = 1,
    output_state: Any = None,
    scales: Scales | None = None,
    teacher_params: Sequence[Params] = (),
) -> Gradients:
    """Returns the gradients of a sparse output layer's loss with respect to the rows that it reads, without R.

    On a mesh only these rows are sent between devices, and the batch is divided over all devices. All microbatches of a
    batch share its samples.

    Args:
        params: The parameters.
        network: Their network.
        batch: The examples.
        carry: The body's state before the batch.
        key: A random key.
        sharding: The sharding of the parameters and the batch.
        num_microbatches: Number of microbatches; see `accumulate`.
        output_state: The output layer's state.
        scales: Factors of the tables; None where the arrays hold the values.
        teacher_params: The parameters of the network's teachers, if it has any.

    Returns:
        The gradients, as the pair (shared, per_example) of `gather_rows`.
    """
    output = cast(SparseOutputLayer, network.output)
    ids_SxL = body_tokens(network, own_ids(network, batch), network.body.layout.lookback).ids_SxL
    key, key_rows = jax.random.split(key)
    rows = Rows(ids_SxL, *output.rows(batch, key_rows, output_state))
    # Replicated: otherwise XLA divides the row numbers too, and sums whole arrays of V rows at the end.
    rows, batch = constrain_replicated((rows, batch), sharding)
    shared, per_example = gather_rows(params, rows, network.tables.words, scales)
    contexts = {CONTEXTS: per_example.pop(CONTEXTS)}
    shared = constrain_replicated(shared, sharding)
    per_example = constrain_examples(per_example, sharding) | contexts

    def device_loss(
        shared: Params, per_example: Params, streams: Any, replicated: Any, axes: MeshAxes = NO_AXES
    ) -> tuple[Any, Any]:
        batch, draws, carry = streams
        key, number, shared_S, extras, teacher_params = replicated
        batch, axis = batch._replace(extras=extras), axes.of_microbatch(number, num_microbatches).data
        batch, carry, teachers, teacher_carries = read_with_teachers(network, batch, carry, teacher_params)
        body = network.features(shared, batch.ids_SxL, carry, key, axis, per_example[CONTEXTS])
        features = by_example(body.features)
        check_targets(features, batch)
        gathered = Gathered(shared, per_example, shared_S, draws)
        if not teachers:
            loss, nll = output.sparse_loss(gathered, features, batch)
            return (loss + body.penalty, nll), body.state
        sampled = cast(SampledSoftmax, output)
        loss, nll = sampled.sparse_distillation_loss(gathered, features, batch, teachers)
        return (loss + body.penalty, nll), (body.state, teacher_carries)

    def microbatch_gradients(streams: Any, number: Any = None) -> tuple[Any, Any]:
        def loss(shared: Params, per_example: Params) -> tuple[jax.Array, tuple[jax.Array, State]]:
            mapped = map_sparse_loss(device_loss, sharding)
            replicated = key, number, rows.shared_S, batch.extras, teacher_params
            (loss, nll), carry = mapped(shared, per_example, streams[1], replicated)
            return loss, (nll, carry)

        gradient = jax.value_and_grad(loss, (0, 1), has_aux=True)
        (_, (nll, carry)), (shared_grads, example_grads) = gradient(shared, streams[0])
        return (nll, shared_grads), (carry, jax.tree.map(lambda g: g / num_microbatches, example_grads))

    streams = per_example, (batch._replace(extras=None), rows.draws, carry)
    (nll, shared_grads), (carry, example_grads) = accumulate(microbatch_gradients, num_microbatches)(streams)
    return Gradients(nll, (shared_grads, example_grads), carry, rows)


def gather_rows(
    params: Params, rows: Rows, tables: Sequence[str], scales: Scales | None = None
) -> tuple[Params, Params]:
    """Gathers the rows.

    Args:
        params: The parameters.
        rows: Which rows.
        tables: The names of the parameters with one row per output word.
        scales: Factors of the tables; None where the arrays hold the values.

    Returns:
        The parameters that all examples share: the tables' rows `shared_S`, and every other parameter. And those of
        each example: the tables' rows `example_rows_BxL`; and C's rows, S x L x M, under the name CONTEXTS.
    """

    def gather(name: str, index: jax.Array) -> jax.Array:
        return params[name][index] if scales is None else scales.weights[name] * params[name][index]

    shared = {name: value for name, value in params.items() if name != EMBEDDING}
    shared |= {name: gather(name, rows.shared_S) for name in tables}
    per_example = {name: gather(name, rows.example_rows_BxL) for name in tables}
    return shared, per_example | {CONTEXTS: gather(EMBEDDING, rows.ids_SxL)}


def row_parts(
    gathered: tuple[Params, Params], rows: Rows, tables: Sequence[str]
) -> dict[str, list[tuple[jax.Array, jax.Array]]]:
    """Returns what `gather_rows` returned, or gradients in that structure, table by table.

    Returns:
        The parts of each table: the numbers of rows, int32, R, and these rows, R x D. A row that was gathered twice
        occurs twice.
    """
    shared, per_example = gathered
    parts: dict[str, list[tuple[jax.Array, jax.Array]]] = {}
    for name in tables:
        parts[name] = [(rows.example_rows_BxL, per_example[name]), (rows.shared_S, shared[name])]
    parts.setdefault(EMBEDDING, []).append((rows.ids_SxL, per_example[CONTEXTS]))  # C may be an output table
    return {
        name: [(ids.reshape(-1), values.reshape(-1, *values.shape[ids.ndim :])) for ids, values in of_table]
        for name, of_table in parts.items()
    }


def row_gradients(
    gradients: Gradients, params: Params, network: Network, sharding: MeshSharding, sums_rows: bool
) -> tuple[Params, dict[str, Any]]:
    """Returns sparse gradients as a tree like the parameters, and which rows of each table they are of.

    In place of each table the tree has the gradients of R rows, whose numbers are int32, R. Where at least as many rows
    were gathered as the table has, it has the gradient of the whole table instead, and `slice(None)` for the numbers,
    which is less to add up and to send: on a mesh, and with `sums_rows`.

    Args:
        gradients: The gradients.
        params: The parameters.
        network: Their network.
        sharding: The sharding of the parameters and the batch.
        sums_rows: Whether each row occurs once, with the sum of its gradients; else a row that was gathered twice
            occurs twice.
    """
    grads: Params = dict(gradients.grads[0])
    rows: dict[str, Any] = {}
    for name, parts in row_parts(gradients.grads, gradients.rows, network.tables.words).items():
        ids, values = zip(*parts)
        num_rows, is_whole = len(params[name]), sum(map(len, ids)) >= len(params[name])
        if is_whole and (sums_rows or sharding.mesh is not None):
            rows[name] = slice(None)
            grads |= constrain({name: _sum(ids, values, num_rows)}, sharding)
        elif sums_rows:
            rows[name], grads[name] = sum_rows(ids, values, num_rows, sharding)
        else:
            rows[name] = jnp.concatenate(ids)
            grads[name] = jnp.concatenate(constrain_replicated(values, sharding))
    return grads, rows


def scatter_to_dense(gradients: Gradients, params: Params, network: Network, sharding: MeshSharding) -> Params:
    """Returns sparse gradients in the structure of the parameters, with zeros in the rows that they leave out."""
    grads, rows = row_gradients(gradients, params, network, sharding, sums_rows=False)
    return add_rows(jax.tree.map(jnp.zeros_like, params), grads, rows)


def sum_rows(
    ids: Sequence[jax.Array], values: Sequence[jax.Array], num_rows: int, sharding: MeshSharding = ONE_DEVICE
) -> tuple[jax.Array, jax.Array]:
    """Sums the values of each row.

    Args:
        ids: The row numbers of each part, int32, R.
        values: The values of each part, R x D.
        num_rows: The number of rows of the table.
        sharding: The sharding of the batch; the row numbers are on every device.

    Returns:
        Distinct row numbers in rising order, padded with `num_rows`, which is no row; and their sums. There are as many
        of both as rows in all parts.
    """
    sizes = [len(part) for part in ids]
    unique = jnp.unique(jnp.concatenate(ids), size=sum(sizes), fill_value=num_rows, return_inverse=True)
    distinct_R, inverse_R = constrain_replicated(unique, sharding)
    parts = constrain_replicated(jnp.split(inverse_R, list(itertools.accumulate(sizes[:-1]))), sharding)
    return distinct_R, constrain_replicated(_sum(parts, values, sum(sizes)), sharding)


def _sum(ids: Sequence[jax.Array], values: Sequence[jax.Array], num_rows: int) -> jax.Array:
    """Sums the values of each row, part by part: one that is divided over devices is summed on each of them first."""
    sums = jnp.zeros((num_rows, *values[0].shape[1:]), values[0].dtype)
    for ids_R, values_RxD in zip(ids, values):
        sums = sums.at[ids_R].add(values_RxD)
    return sums
