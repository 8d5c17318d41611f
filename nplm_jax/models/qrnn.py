"""Implements the quasi-recurrent network, whose only recurrence is a gated sum.

A layer computes (z, f, o) = (tanh, sigmoid, sigmoid)(W x_t + W' x_{t-1} + b), c_t = f * c_{t-1} + (1 - f) * z and
h_t = o * c_t. Only the first layer has W', which makes this layer a convolution over two words. The matrix products are
computed for all words at once.

Dims: S streams, T words per stream, D inputs of a layer, K state size (h), G = 3K.

References:
    Bradbury, Merity, Xiong and Socher, Quasi-recurrent neural networks, 2017 (fo-pooling, section 2.1). Merity, Keskar
    and Socher, An analysis of neural language modeling at multiple scales, 2018 (W' only in the first layer).
"""

import jax
import jax.numpy as jnp

from nplm_jax.models.body import Body, State
from nplm_jax.models.lstm import scale
from nplm_jax.models.recurrent import Recurrent
from nplm_jax.nn import Precision, matmul, uniform
from nplm_jax.outputs.output_layer import Params
from nplm_jax.utils.errors import require

_BEFORE = 'W_before_DxG'


class Qrnn(Recurrent):
    """A quasi-recurrent network. The state of a layer is c, and in the first layer also the last input."""

    def check(self) -> None:
        """See `Component.check`. Also rejects dropout of recurrent weights, which this network does not have."""
        rate, allowed = self.weight_dropout, 'must be 0 for model.family=qrnn, which has no recurrent weights'
        require(not rate, 'model.weight_dropout', rate, allowed)
        super().check()

    def init(self, key: jax.Array, vocabulary_size: int) -> Params:
        """See `Recurrent.init`. Matrices are uniform in ±1/sqrt(inputs)."""
        params, key_before = super().init(key, vocabulary_size), jax.random.fold_in(key, 1)
        params['cell'][_BEFORE] = uniform(key_before, (self.m, 3 * self.h), self.m**-0.5)
        return params

    def output_keys(self, key: jax.Array) -> dict[str, jax.Array]:
        """See `Body.output_keys`. The key from `Recurrent.output_keys` is not reused, because it initializes W'."""
        return Body.output_keys(self, key)

    def init_cell(self, key: jax.Array, num_inputs: int) -> Params:
        """Initializes W of one layer uniformly in ±1/sqrt(D), and b to zero."""
        return {'W_DxG': uniform(key, (num_inputs, 3 * self.h), num_inputs**-0.5), 'b_G': jnp.zeros(3 * self.h)}

    def start(self, num_streams: int) -> State:
        """Returns a zero state for each layer."""
        first, *others = ({'c': self.start_cell(num_streams)} for _ in range(self.layers))
        return ({**first, 'before': jnp.zeros((num_streams, self.m))}, *others)

    def read(
        self,
        cell: Params,
        state: State,
        e_TxSxD: jax.Array,
        precision: Precision,
        keep_TxSx1: jax.Array | None = None,
    ) -> tuple[State, jax.Array]:
        """See `Recurrent.read`."""
        z_TxSxG = matmul(e_TxSxD, cell['W_DxG'], precision) + cell['b_G'][None, None]
        if _BEFORE in cell:
            before_TxSxD = scale(jnp.concatenate([state['before'][None], e_TxSxD[:-1]]), keep_TxSx1)
            z_TxSxG = z_TxSxG + matmul(before_TxSxD, cell[_BEFORE], precision)
        z_TxSxK, f_TxSxK, o_TxSxK = jnp.split(z_TxSxG, 3, axis=2)
        f_TxSxK = jax.nn.sigmoid(f_TxSxK)
        new_TxSxK = (1 - f_TxSxK) * jnp.tanh(z_TxSxK)

        def step(c_SxK: jax.Array, word: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
            f_SxK, new_SxK = word
            c_SxK = f_SxK * c_SxK + new_SxK
            return c_SxK, c_SxK

        end_SxK, c_TxSxK = jax.lax.scan(step, state['c'], (scale(f_TxSxK, keep_TxSx1), new_TxSxK))
        last = {'before': e_TxSxD[-1].astype(state['before'].dtype)} if _BEFORE in cell else {}
        return {'c': end_SxK, **last}, jax.nn.sigmoid(o_TxSxK) * c_TxSxK
