"""An LSTM whose input and state change each other before each step: a Mogrifier.

Before the gates are computed, rounds i = 1, 2, ... take turns: x := 2 sigmoid(h Q_i) * x in the odd ones, and
h := 2 sigmoid(x R_i) * h in the even ones, where x is the input of the layer and h the state before the word. Dims: S
streams, T words of a stream, D inputs of a layer, K size of the state (h), G = 4K size of the gates i, f, g, o.

References:
    Melis, Kocisky and Blunsom, Mogrifier LSTM, 2020.
"""

import dataclasses
import functools
from typing import Self

import jax
import jax.numpy as jnp

from nplm_jax.config import Settings
from nplm_jax.models.lstm import GATES
from nplm_jax.models.recurrent import Lstm
from nplm_jax.outputs.output_layer import Params
from nplm_jax.utils.nn import Precision, matmul, uniform

Carry = tuple[jax.Array, jax.Array]  # c and h, S x K
GATES_WEIGHT = 'W_DKxG'  # of the input and the state, side by side


@dataclasses.dataclass(frozen=True)
class Mogrifier(Lstm):
    """Mogrifier LSTM (`model.family=mogrifier`).

    Attributes:
        rounds: Number of rounds; with 0 it is an LSTM.
    """

    rounds: int = 5

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Returns the body. Raises BadInput for what a recurrent network cannot have."""
        return dataclasses.replace(super().from_settings(settings), rounds=settings.mogrifier.rounds)

    def init_cell(self, key: jax.Array, num_inputs: int) -> Params:
        """Returns the parameters of Flax's cell, and Q_i and R_i, uniform in +-1/sqrt of their number of rows."""
        cell = dict(super().init_cell(key, num_inputs))
        for i in range(1, self.rounds + 1):
            name, shape = (f'Q_{i}_KxD', (self.h, num_inputs)) if i % 2 else (f'R_{i}_DxK', (num_inputs, self.h))
            cell[name] = uniform(jax.random.fold_in(key, i), shape, shape[0] ** -0.5)
        return cell

    def read(self, cell: Params, carry: Carry, e_TxSxD: jax.Array, precision: Precision) -> tuple[Carry, jax.Array]:
        """See `Recurrent.read`."""
        T, S, _ = e_TxSxD.shape
        weights = {name: weight for name, weight in cell.items() if name.startswith(('Q_', 'R_'))}
        offsets = {name: jnp.zeros((T, S, weight.shape[1])) for name, weight in weights.items()}
        W_DxG, W_KxG = (jnp.concatenate([cell[s + gate]['kernel'] for gate in GATES], axis=1) for s in 'ih')
        b_G = jnp.concatenate([cell[f'h{gate}']['bias'] for gate in GATES])
        weights[GATES_WEIGHT] = jnp.concatenate([W_DxG, W_KxG])
        offsets[GATES_WEIGHT] = jnp.broadcast_to(b_G, (T, S, len(b_G)))
        return _scan(precision, weights, offsets, carry, e_TxSxD)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _scan(
    precision: Precision, weights: Params, offsets: Params, carry: Carry, x_TxSxD: jax.Array
) -> tuple[Carry, jax.Array]:
    """Reads T words of each stream. The gradients of the weights are computed for all words at once.

    Args:
        precision: Of the factors of products; sums and the state are float32.
        weights: Q_i, R_i and the weights of the gates, by name.
        offsets: What is added to the product with each weight, T x S x columns.
        carry: c and h before the first word.
        x_TxSxD: The inputs.

    Returns:
        c and h after the last word, and h after each word, T x S x K, float32.
    """
    return _read(precision, weights, offsets, carry, x_TxSxD)[0]


def _read(
    precision: Precision, weights: Params, offsets: Params, carry: Carry, x_TxSxD: jax.Array
) -> tuple[tuple[Carry, jax.Array], Params]:
    """Returns what `_scan` returns, and the left factors of the products with each weight, T x S x rows."""

    rounded = {name: (weight.astype(precision), weight.T.astype(precision)) for name, weight in weights.items()}

    def step(carry: Carry, word: tuple[jax.Array, Params]) -> tuple[Carry, tuple[jax.Array, Params]]:
        c_SxK, h_SxK = carry
        x_SxD, offset = word
        factors = {}

        def product(left: jax.Array, name: str) -> jax.Array:
            factors[name] = left
            return _product(left, *rounded[name]) + offset[name]

        for name in sorted(weights.keys() - {GATES_WEIGHT}, key=lambda name: int(name.split('_')[1])):
            if name.startswith('Q'):
                x_SxD = 2 * jax.nn.sigmoid(product(h_SxK, name)) * x_SxD
            else:
                h_SxK = 2 * jax.nn.sigmoid(product(x_SxD, name)) * h_SxK
        i, f, g, o = jnp.split(product(jnp.concatenate([x_SxD, h_SxK], axis=1), GATES_WEIGHT), 4, axis=1)
        c_SxK = jax.nn.sigmoid(f) * c_SxK + jax.nn.sigmoid(i) * jnp.tanh(g)
        h_SxK = jax.nn.sigmoid(o) * jnp.tanh(c_SxK)
        return (c_SxK, h_SxK), (h_SxK, factors)

    carry, (h_TxSxK, factors) = jax.lax.scan(step, carry, (x_TxSxD, offsets))
    return (carry, h_TxSxK), factors


def _forward(precision: Precision, weights: Params, *arguments):  # noqa
    result, pullback, factors = jax.vjp(functools.partial(_read, precision, weights), *arguments, has_aux=True)
    return result, (pullback, factors)


def _backward(precision: Precision, saved, cotangents):  # noqa
    pullback, factors = saved
    d_offsets, *others = pullback(cotangents)
    d_weights = {
        name: matmul(left.reshape(-1, left.shape[-1]).T, d_offsets[name].reshape(-1, d_offsets[name].shape[-1]), precision)
        for name, left in factors.items()
    }
    return d_weights, d_offsets, *others


_scan.defvjp(_forward, _backward)


@jax.custom_vjp
def _product(left: jax.Array, right: jax.Array, right_transposed: jax.Array) -> jax.Array:
    return jnp.dot(left.astype(right.dtype), right, preferred_element_type=jnp.float32)


_product.defvjp(
    lambda left, right, right_transposed: (_product(left, right, right_transposed), right_transposed),
    lambda right, cotangent: (jnp.dot(cotangent.astype(right.dtype), right, preferred_element_type=jnp.float32), None, None),
)
