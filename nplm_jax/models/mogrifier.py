"""Implements the Mogrifier, an LSTM whose input and state gate each other before each step.

Let x be the input of a layer, and h the state of the layer before the word. In rounds i = 1, 2, ..., the layer updates
x := 2 sigmoid(h Q_i) * x if i is odd, and h := 2 sigmoid(x R_i) * h if i is even. The gated x and h are then the input
and the state of an LSTM step.

Dims: S streams, T words per stream, D inputs of a layer, K state size (h), G = 4K size of the gates i, f, g, o.

References:
    Melis, Kocisky and Blunsom, Mogrifier LSTM, 2020.
"""

import dataclasses
import functools
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from nplm_jax.config.component import between, key
from nplm_jax.models.lstm import Carry, join_gates, product, scale
from nplm_jax.models.recurrent import Lstm
from nplm_jax.nn import Precision, matmul, uniform
from nplm_jax.outputs.output_layer import Params

GATES_WEIGHT = 'W'  # name of the weights of the gates, (D + K) x G; the first D rows are for x, the others for h


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mogrifier(Lstm):
    """An LSTM whose input and state gate each other before each word. The state of a layer is (c, h)."""

    rounds: Annotated[int, between(1, 16)] = key(5, 'number of gating rounds before each word')

    @property
    def round_names(self) -> tuple[str, ...]:
        """Parameter names of the rounds, from the first to the last."""
        return tuple(f'R_{i}_DxK' if i % 2 == 0 else f'Q_{i}_KxD' for i in range(1, self.rounds + 1))

    def init_cell(self, key: jax.Array, num_inputs: int) -> Params:
        """Initializes the parameters of Flax's cell, and Q_i and R_i uniformly in ±1/sqrt(number of rows)."""
        cell = dict(super().init_cell(key, num_inputs))
        for i, name in enumerate(self.round_names):
            shape = (self.h, num_inputs) if name.startswith('Q') else (num_inputs, self.h)
            cell[name] = uniform(jax.random.fold_in(key, i), shape, shape[0] ** -0.5)
        return cell

    def read(
        self,
        cell: Params,
        carry: Carry,
        e_TxSxD: jax.Array,
        precision: Precision,
        keep_TxSx1: jax.Array | None = None,
    ) -> tuple[Carry, jax.Array]:
        """See `Recurrent.read`."""
        weights = {name: cell[name] for name in self.round_names}
        W_DxG, W_KxG, b_G = join_gates(cell)
        weights[GATES_WEIGHT] = jnp.concatenate([W_DxG, W_KxG])
        # The zeros depend on the inputs, so each device of a mesh computes offset gradients for its own streams.
        zeros_TxSx1 = 0 * e_TxSxD[:, :, :1]
        offsets = {name: zeros_TxSx1 + jnp.zeros((1, 1, weight.shape[1])) for name, weight in weights.items()}
        offsets[GATES_WEIGHT] += b_G[None, None]
        return _read(self.round_names, precision, weights, keep_TxSx1, offsets, carry, e_TxSxD)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _read(
    rounds: tuple[str, ...],
    precision: Precision,
    weights: Params,
    keep_TxSx1: jax.Array | None,
    offsets: Params,
    carry: Carry,
    x_TxSxD: jax.Array,
) -> tuple[Carry, jax.Array]:
    """Reads T words of each stream.

    An offset is added to each product with a weight matrix: the bias for the gates, and zero for the rounds. The
    gradient of an offset equals the gradient of the product. The gradient of a weight matrix is therefore a single
    product over all words, of left factors and gradients of offsets, instead of a sum of T products inside a scan.

    Args:
        rounds: The names of the rounds' weights, in order.
        precision: The precision of the factors in matrix products; sums and the state are float32.
        weights: The weights of the rounds and of the gates, by name.
        keep_TxSx1: See `Recurrent.read`.
        offsets: The offset of the product with each weight, T x S x (number of columns of the weight).
        carry: c and h before the first word.
        x_TxSxD: The inputs of the layer, float32 or bfloat16.

    Returns:
        A tuple (carry, h) of c and h after the last word, and of h after each word, T x S x K, float32.
    """
    return _scan(rounds, precision, weights, keep_TxSx1, offsets, carry, x_TxSxD)[0]


def _scan(
    rounds: tuple[str, ...],
    precision: Precision,
    weights: Params,
    keep_TxSx1: jax.Array | None,
    offsets: Params,
    carry: Carry,
    x_TxSxD: jax.Array,
) -> tuple[tuple[Carry, jax.Array], Params]:
    """Returns the results of `_read`, and the left factors of the products with each weight, T x S x weight rows."""
    rounded = {name: (weight.astype(precision), weight.T.astype(precision)) for name, weight in weights.items()}

    def step(carry: Carry, word: tuple[jax.Array, Params, Any]) -> tuple[Carry, tuple[jax.Array, Params]]:
        x_SxD, offset, keep_Sx1 = word
        c_SxK, h_SxK = scale(carry, keep_Sx1)
        factors = {}
        for name in rounds:
            if name.startswith('Q'):
                factors[name] = h_SxK
                x_SxD = 2 * jax.nn.sigmoid(_product(h_SxK, *rounded[name]) + offset[name]) * x_SxD
            else:
                factors[name] = x_SxD
                h_SxK = 2 * jax.nn.sigmoid(_product(x_SxD, *rounded[name]) + offset[name]) * h_SxK
        factors[GATES_WEIGHT] = xh = jnp.concatenate([x_SxD, h_SxK], axis=1)
        i, f, g, o = jnp.split(_product(xh, *rounded[GATES_WEIGHT]) + offset[GATES_WEIGHT], 4, axis=1)
        c_SxK = jax.nn.sigmoid(f) * c_SxK + jax.nn.sigmoid(i) * jnp.tanh(g)
        h_SxK = jax.nn.sigmoid(o) * jnp.tanh(c_SxK)
        return (c_SxK, h_SxK), (h_SxK, factors)

    end, (h_TxSxK, factors) = jax.lax.scan(step, carry, (x_TxSxD, offsets, keep_TxSx1))
    return (end, h_TxSxK), factors


def _forward(
    rounds: tuple[str, ...], precision: Precision, weights: Params, keep_TxSx1: jax.Array | None, *inputs: Any
) -> tuple[tuple[Carry, jax.Array], Any]:
    scan = functools.partial(_scan, rounds, precision, weights, keep_TxSx1)
    result, pullback, factors = jax.vjp(scan, *inputs, has_aux=True)
    return result, (pullback, factors)


def _backward(rounds: tuple[str, ...], precision: Precision, saved: Any, cotangents: Any) -> tuple[Any, ...]:
    pullback, factors = saved
    d_offsets, d_carry, d_x_TxSxD = pullback(cotangents)
    d_weights = {name: matmul(_rows(left).T, _rows(d_offsets[name]), precision) for name, left in factors.items()}
    return d_weights, None, d_offsets, d_carry, d_x_TxSxD


_read.defvjp(_forward, _backward)


def _rows(values_TxSxD: jax.Array) -> jax.Array:
    return values_TxSxD.reshape(-1, values_TxSxD.shape[-1])


@jax.custom_vjp
def _product(left_SxD: jax.Array, right_DxK: jax.Array, right_KxD: jax.Array) -> jax.Array:
    """Rounds `left_SxD` to the dtype of a weight and multiplies it by the weight, which is passed with its transpose.

    Only the left factor has a gradient, which is computed from the rounded cotangent.
    """
    return product(left_SxD, right_DxK)


_product.defvjp(
    lambda left_SxD, right_DxK, right_KxD: (_product(left_SxD, right_DxK, right_KxD), (right_DxK, right_KxD)),
    lambda rights, cotangent_SxK: (_product(cotangent_SxK, *rights[::-1]), None, None),
)
