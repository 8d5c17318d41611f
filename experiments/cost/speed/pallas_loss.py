"""The output layer's loss and gradients as one kernel for GPUs, written in Pallas for its Triton backend.

With p = softmax(b + W x), W and x of all terms side by side, the gradients are those of blockwise.py: W^T p less the
target's row for x, p x^T less x at the target's row for W. Both products with p are attention whose keys are its values
too. Inputs ask the words: out come log sum exp y, and W^T p. Words ask the inputs, with scores less log sum exp y, log
p: out come the log of the word's probability summed over the examples, and the inputs' mean weighted by p. So one
kernel serves both, run twice, with a maximum and a sum that run along as keys pass by, and no score leaves the chip.

Operations: scores twice and two products with E = exp(y - largest), 8 for each weight and example where blockwise.py
takes 6; two more in each run for every further COLUMNS of K. Bytes, at V=16,384, B=512, K=290 in bfloat16:
blockwise.py, all examples a block, writes the scores in float32 and reads them, and writes E once and reads it twice,
117 MB if no cache helps. Here the partial results of the inputs' run are written and read, splits x B x K in float32:
42 MB. Both besides: the weights, and their gradients.

Triton, as Mosaic, the other backend of Pallas for GPUs, multiplies float32 as TensorFloat-32. JAX 0.11 and 0.12 call
Pallas' Triton backend deprecated.
Dims as in blockwise.py, and: Q queries, N keys, S splits of the keys; of one program R queries, T keys at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from nplm_jax.outputs.blockwise import LinearTerm, Precision

CHUNK = {'float32': 32, 'bfloat16': 64}  # columns of one product; all sizes are powers of 2, as Triton wants
COLUMNS = 320  # that one run sums up: with R=128 160 registers a thread
MULTIPROCESSORS = 132
SHARED_MEMORY = 227 * 1024  # bytes of a program
TILES = {  # R, T, warps and stages of loading, the first that fits
    'float32': ((64, 32, 16, 1), (32, 16, 8, 1)),
    'bfloat16': ((128, 64, 8, 3), (64, 64, 4, 2), (64, 16, 4, 2)),
}
ROWS = 128  # a multiple of every R and T
Gradients: TypeAlias = tuple[tuple[tuple[jax.Array, jax.Array], ...], jax.Array]  # in the shape of (terms, b_V)
Ref: TypeAlias = Any  # an array in the memory of the device, which the kernel reads or writes by index
Running: TypeAlias = tuple[jax.Array, jax.Array, list[jax.Array]]  # largest scores, sums of E, sums of E's keys
NOTHING = -1e30  # a score that adds nothing to a sum: of padding, and before the first key


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def nll_per_word(
    terms: tuple[LinearTerm, ...], b_V: jax.Array, targets_B: jax.Array, precision: Precision
) -> jax.Array:
    """`blockwise_cross_entropy` on one device: mean of -log P(target), nats a word; on a CPU the kernel is interpreted.

    precision: bfloat16 rounds the weights, inputs and E in the products; sums, b and the targets' scores stay float32.
    Raises: StopIteration when K is too large for the chip, above 1,152.
    """
    return _forward(terms, b_V, targets_B, precision)[0]


def _forward(
    terms: tuple[LinearTerm, ...], b_V: jax.Array, targets_B: jax.Array, precision: Precision
) -> tuple[jax.Array, Gradients]:
    """The loss, and its gradients in the shape of (terms, b_V)."""
    weights, inputs = zip(*terms)
    V, B = len(b_V), len(targets_B)
    W_VxK, X_BxK = (_side_by_side(arrays, precision) for arrays in (weights, inputs))
    none_B, none_V = jnp.zeros(B), jnp.zeros(V)
    largest_B, log_sum_B, expected_BxK = (x[:B] for x in _attend(X_BxK, none_B, W_VxK, (b_V, none_V)))
    largest_V, log_share_V, mean_VxK = (x[:V] for x in _attend(W_VxK, b_V, X_BxK, (-largest_B, -log_sum_B)))
    *of_targets, b_B = [w[targets_B] for w in (*weights, b_V)]
    target_scores_B = b_B + sum(jnp.sum(w * x, axis=1) for w, x in zip(of_targets, inputs))
    share_V = jnp.exp(largest_V + log_share_V)
    ends = [sum(w.shape[1] for w in weights[: i + 1]) for i in range(len(weights))]
    summed = jnp.split(share_V[:, None] * mean_VxK, ends, axis=1)
    weight_gradients = [w.at[targets_B].add(-x) / B for w, x in zip(summed, inputs)]
    input_gradients = [(mean - w) / B for mean, w in zip(jnp.split(expected_BxK, ends, axis=1), of_targets)]
    gradients = tuple(zip(weight_gradients, input_gradients)), share_V.at[targets_B].add(-1.0) / B
    return jnp.mean(largest_B - target_scores_B + log_sum_B), gradients


def _backward(_precision: Precision, gradients: Gradients, cotangent: jax.Array) -> tuple[Any, Any, None]:
    terms, b_V = jax.tree.map(lambda g: g * cotangent, gradients)
    return terms, b_V, None


nll_per_word.defvjp(_forward, _backward)


def _side_by_side(arrays: Sequence[jax.Array], precision: Precision) -> jax.Array:
    """One matrix of all terms' columns, with zeros up to whole tiles."""
    joined = jnp.concatenate([x.astype(precision) for x in arrays], axis=1)
    return jnp.pad(joined, [(0, -n % tile) for n, tile in zip(joined.shape, (ROWS, CHUNK[precision]))])


def _attend(
    queries_QxK: jax.Array, own_Q: jax.Array, keys_NxK: jax.Array, added: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Of each query its largest score, log sum E over the keys, and the keys' mean weighted by E = exp(y - largest).

    The scores y are keys @ query + the query's own + two numbers added to a key, in this order: where a word gets
    nearly all of p, its score must meet the largest one, and cancel, before log sum E, which is far smaller, is lost.
    Splits of the keys are worked on by programs of their own, as many as occupy the chip, and combined here.
    """
    own_Q = jnp.pad(own_Q, (0, len(queries_QxK) - len(own_Q)))
    added_2xN = jnp.pad(jnp.stack(added), ((0, 0), (0, len(keys_NxK) - len(added[0]))), constant_values=NOTHING)
    taken = []
    for first in range(0, queries_QxK.shape[1], COLUMNS):
        largest_SxQ, sum_SxQ, of_columns = _run(queries_QxK, own_Q, keys_NxK, added_2xN, first)
        largest_Q = jnp.max(largest_SxQ, axis=0)
        share_SxQ = jnp.exp(largest_SxQ - largest_Q[None, :])
        sum_Q = jnp.sum(share_SxQ * sum_SxQ, axis=0)
        taken.append(jnp.sum(of_columns * (share_SxQ / sum_Q[None, :])[:, :, None], axis=0))
    return largest_Q, jnp.log(sum_Q), jnp.concatenate(taken, axis=1)


def _run(
    queries_QxK: jax.Array, own_Q: jax.Array, keys_NxK: jax.Array, added_2xN: jax.Array, first: int
) -> Sequence[jax.Array]:
    """The kernel on all splits: the largest scores and the sums of E, S x Q, and those of E's keys, columns last."""
    (Q, K), N, dtype = queries_QxK.shape, len(keys_NxK), queries_QxK.dtype
    columns = min(COLUMNS, K - first)
    R, T, warps, stages = next(
        (R, T, warps, stages)
        for R, T, warps, stages in TILES[dtype.name]
        if (R + stages * T) * K * dtype.itemsize <= SHARED_MEMORY
    )
    each = pl.cdiv(N // T, max(1, MULTIPROCESSORS * R // Q))
    S = pl.cdiv(N // T, each)
    call = functools.partial(
        pl.pallas_call,
        functools.partial(_kernel, T=T, each=each, first=first),
        grid=(Q // R, S),
        in_specs=[
            pl.BlockSpec((R, K), lambda i, j: (i, 0)),
            pl.BlockSpec((R,), lambda i, j: (i,)),
            pl.BlockSpec((N, K), lambda i, j: (0, 0)),
            pl.BlockSpec((2, N), lambda i, j: (0, 0)),
        ],
        out_specs=[pl.BlockSpec((None, R), lambda i, j: (j, i))] * 2
        + [pl.BlockSpec((None, R, columns), lambda i, j: (j, i, 0))],
        out_shape=[jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((S, Q), (S, Q), (S, Q, columns))],
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=stages),
    )
    arguments = queries_QxK, own_Q, keys_NxK, added_2xN
    return jax.lax.platform_dependent(*arguments, cpu=call(interpret=True), default=call())


def _kernel(
    queries_RxK: Ref,
    own_R: Ref,
    keys_NxK: Ref,
    added_2xN: Ref,
    largest_R: Ref,
    sum_R: Ref,
    taken_RxC: Ref,
    *,
    T: int,
    each: int,
    first: int,
) -> None:
    """R queries over the keys of one split, `each` tiles of T; sums of E's keys from column `first` on."""
    R, K = queries_RxK.shape
    chunk = CHUNK[queries_RxK.dtype.name]
    chunks = [pl.ds(i, chunk) for i in range(0, K, chunk)]
    held = slice(first // chunk, (first + taken_RxC.shape[1]) // chunk)
    queries, own_Rx1 = [queries_RxK[:, c] for c in chunks], own_R[:][:, None]

    def step(i: jax.Array, running: Running) -> Running:
        largest_R, sum_R, taken = running
        tile = pl.ds(i * T, T)
        keys = [keys_NxK[tile, c] for c in chunks]
        y_RxT = sum(_product(q, k, (1, 1)) for q, k in zip(queries, keys)) + own_Rx1
        y_RxT = y_RxT + added_2xN[0, tile][None, :] + added_2xN[1, tile][None, :]
        now_R = jnp.maximum(largest_R, jnp.max(y_RxT, axis=1))
        shrunk_R = jnp.exp(largest_R - now_R)
        E_RxT = jnp.exp(y_RxT - now_R[:, None])
        sum_R = sum_R * shrunk_R + jnp.sum(E_RxT, axis=1)
        E_RxT = E_RxT.astype(queries_RxK.dtype)
        taken = [t * shrunk_R[:, None] + _product(E_RxT, k, (1, 0)) for t, k in zip(taken, keys[held])]
        return now_R, sum_R, taken

    begin = pl.program_id(1) * each
    end = jnp.minimum(begin + each, len(keys_NxK) // T)
    taken = [jnp.zeros((R, chunk), jnp.float32) for _ in chunks[held]]
    start = jnp.full(R, NOTHING, jnp.float32), jnp.zeros(R, jnp.float32), taken
    largest_R[:], sum_R[:], taken = jax.lax.fori_loop(begin, end, step, start)
    for t, i in zip(taken, range(0, taken_RxC.shape[1], chunk)):
        taken_RxC[:, pl.ds(i, chunk)] = t


def _product(left: jax.Array, right: jax.Array, contract: tuple[int, int]) -> jax.Array:
    """A float32 matrix product over one axis of each operand; Triton's default would be TensorFloat-32."""
    axes = (((contract[0],), (contract[1],)), ((), ()))
    return jax.lax.dot_general(left, right, axes, jax.lax.Precision.HIGHEST, jnp.float32)
