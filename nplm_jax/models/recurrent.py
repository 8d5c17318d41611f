"""Implements recurrent bodies: y = b + U h_t, where the state h_t summarizes the words before w_t.

`rnn` computes h_t = tanh(b_1 + W_h h_{t-1} + W_e e_t), where e_t = C(w_{t-1}). `gru` and `lstm` follow Flax's cells.
Each layer above the first reads h of the layer below.

Dims: V vocabulary, M features per word (m), K state size (h), D inputs of a layer, S parallel streams, T words per
stream, B = S * T examples, stream by stream.

References:
    Elman, Finding structure in time, 1990; Mikolov et al., Recurrent neural network based language model, 2010.
    Cho et al., Learning phrase representations using RNN encoder-decoder, 2014.
    Hochreiter and Schmidhuber, Long short-term memory, 1997.
    Gal and Ghahramani, A theoretically grounded application of dropout in recurrent neural networks, 2016.
    Merity et al., Regularizing and optimizing LSTM language models, 2018.
"""

import dataclasses
import functools
import zlib
from typing import Any, ClassVar

import flax.linen
import jax
import jax.numpy as jnp

from nplm_jax.config.component import NonNegative, Share, key
from nplm_jax.models import lstm
from nplm_jax.models.body import BodyOutput, State
from nplm_jax.models.stream_body import StreamBody
from nplm_jax.nn import Keys, Precision, drop_weights, dropout, fold_in, matmul, uniform
from nplm_jax.outputs.output_layer import EMBEDDING, Params, Tables
from nplm_jax.utils.errors import require


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recurrent(StreamBody):
    """A multi-layer recurrent network with optional regularization, trained by truncated backpropagation through time.

    Dropout is applied to the word features, to h between layers and to h of the last layer (Zaremba et al., 2014).
    A subclass must define `advance` or `read`. It must also define `init_cell`, unless the parameters of a layer are
    those of the Flax cell `cell_class`.

    Attributes:
        cell_class: The Flax cell that defines the parameters of a layer.
    """

    weight_dropout: Share = key(0.0, 'dropout rate of recurrent (state-to-state) weights during training')
    activation_penalty: NonNegative = key(
        0.0, "coefficient of a penalty on the mean square of the last layer's output, after dropout"
    )
    slowness_penalty: NonNegative = key(
        0.0,
        "coefficient of a penalty on the mean squared change in the last layer's output between words, before dropout",
    )
    cell_class: ClassVar[Any]

    def check(self) -> None:
        """See `Component.check`. Also rejects a slowness penalty if training segments consist of a single word."""
        can_slow = self.bptt_length > 1 or not self.slowness_penalty
        require(
            can_slow, 'model.bptt_length', self.bptt_length, 'must be 2 or more if model.slowness_penalty is positive'
        )
        super().check()

    @property
    def reach(self) -> int | None:
        """See `Body.reach`."""
        return None

    @property
    def cells(self) -> tuple[str, ...]:
        """Parameter names of the cells, from the first layer to the last."""
        return tuple(f'cell_{i}' if i else 'cell' for i in range(self.layers))

    @property
    def is_projected(self) -> bool:
        """Whether h is projected to the width of C, as weight tying requires if the widths differ."""
        return self.tied and self.h != self.m

    def init(self, key: jax.Array, vocabulary_size: int) -> Params:
        """Initializes C uniformly in ±0.1, the cells, and the projection uniformly in ±1/sqrt(K)."""
        key_C, _, key_cell = jax.random.split(key, 3)
        params: Params = {EMBEDDING: uniform(key_C, (vocabulary_size, self.m), 0.1)}
        for i, name in enumerate(self.cells):
            layer_key = jax.random.fold_in(key_cell, i) if i else key_cell
            params[name] = self.init_cell(layer_key, self.h if i else self.m)
        if self.is_projected:
            key_P = jax.random.fold_in(key, 6)  # bodies and output layers use 0 to 5, and cells those of key_cell
            params['P_KxM'] = uniform(key_P, (self.h, self.m), self.h**-0.5)
        return params

    def output_keys(self, key: jax.Array) -> dict[str, jax.Array]:
        """See `Body.output_keys`."""
        return dict.fromkeys(self.widths, jax.random.split(key, 3)[1])

    def init_cell(self, key: jax.Array, num_inputs: int) -> Params:
        """Returns initial parameters of a layer's cell."""
        return self.cell_class(self.h).init(key, self.start_cell(1), jnp.zeros((1, num_inputs)))['params']

    def advance(self, cell: Params, state: State, e_SxD: jax.Array, precision: Precision) -> tuple[State, jax.Array]:
        """Reads one word of each stream with one layer; see `read`. Returns the layer's next state, and h, S x K."""
        raise NotImplementedError

    def read(
        self,
        cell: Params,
        state: State,
        e_TxSxD: jax.Array,
        precision: Precision,
        keep_TxSx1: jax.Array | None = None,
    ) -> tuple[State, jax.Array]:
        """Reads T words of each stream with one layer.

        Args:
            cell: The parameters of the layer.
            state: The state of the layer before these words.
            e_TxSxD: The inputs of the layer: float32, or bfloat16 if `activations` is bfloat16.
            precision: The precision of the factors in matrix products. Sums and the state are float32.
            keep_TxSx1: The factor by which the state is multiplied before each word. It is 0 at the first word of a
                line, which resets the state. None means 1.

        Returns:
            A tuple (state, h) of the state of the layer after the last word, and of h after each word, T x S x K.
        """

        def step(state: State, word: tuple[jax.Array, jax.Array | None]) -> tuple[State, jax.Array]:
            e_SxD, keep_Sx1 = word
            return self.advance(cell, lstm.scale(state, keep_Sx1), e_SxD, precision)

        return jax.lax.scan(step, state, (e_TxSxD, keep_TxSx1))

    def features(
        self,
        params: Params,
        e_SxLxM: jax.Array,
        state: State,
        keys: Keys | None = None,
        starts_SxL: jax.Array | None = None,
    ) -> BodyOutput:
        """See `Body.features`. No gradient flows into `state`."""
        h_SxTxK, state = self.read_layers(params, e_SxLxM, state, keys, starts_SxL)
        return self.output(params, h_SxTxK, state, keys)

    def read_layers(
        self,
        params: Params,
        e_SxTxM: jax.Array,
        state: State,
        keys: Keys | None,
        starts_SxT: jax.Array | None,
    ) -> tuple[jax.Array, State]:
        """Reads T words of each stream with all layers; see `features`.

        Returns:
            A tuple (h, state) of h of the last layer after each word, S x T x K, and of the states of the layers after
            the last word.
        """
        precision, activations = self.types(keys)
        of_words, of_features, of_layers = (fold_in(keys, i) for i in (0, 1, 3))
        drop = functools.partial(dropout, broadcast_dims=self.mask_dims)
        keep_TxSx1 = None if starts_SxT is None else 1.0 - starts_SxT.T[:, :, None]
        x_SxTxD = drop(of_features, self.drop_words(of_words, e_SxTxM), self.dropout)
        states = []
        for i, (name, layer_state) in enumerate(zip(self.cells, jax.lax.stop_gradient(state))):
            cell = _drop_recurrent_weights(fold_in(of_layers, i), params[name], self.weight_dropout)
            x_TxSxD = x_SxTxD.swapaxes(0, 1).astype(activations)
            layer_state, h_TxSxK = self.read(cell, layer_state, x_TxSxD, precision, keep_TxSx1)
            states.append(layer_state)
            x_SxTxD = h_TxSxK.swapaxes(0, 1)
            if i < self.layers - 1:
                x_SxTxD = drop(fold_in(of_layers, i), x_SxTxD, self.dropout)
        return x_SxTxD, tuple(states)

    def output(self, params: Params, h_SxTxK: jax.Array, state: State, keys: Keys | None) -> BodyOutput:
        """Projects h if necessary, and applies dropout to it. Returns it with a state and the penalties."""
        h_SxTxD = matmul(h_SxTxK, params['P_KxM'], self.types(keys)[0]) if self.is_projected else h_SxTxK
        dropped_SxTxD = dropout(fold_in(keys, 2), h_SxTxD, self.output_rate, self.mask_dims)
        return BodyOutput(dict.fromkeys(self.widths, dropped_SxTxD), state, self.penalty(dropped_SxTxD, h_SxTxD))

    def penalty(self, dropped_SxTxD: jax.Array, h_SxTxD: jax.Array) -> jax.Array | float:
        """Returns the activation and slowness penalties of the last layer's output (Merity et al., section 4.4)."""
        penalty: jax.Array | float = 0.0
        if self.activation_penalty:
            penalty += self.activation_penalty * jnp.mean(jnp.square(dropped_SxTxD))
        if self.slowness_penalty:
            penalty += self.slowness_penalty * jnp.mean(jnp.square(h_SxTxD[:, 1:] - h_SxTxD[:, :-1]))
        return penalty

    def start(self, num_streams: int) -> State:
        """Returns a zero state for each layer."""
        return (self.start_cell(num_streams),) * self.layers

    def start_cell(self, num_streams: int) -> State:
        """Returns the zero state of one layer, S x K."""
        return jnp.zeros((num_streams, self.h))


class Elman(Recurrent):
    """Elman's recurrent network."""

    tables = Tables(units=('W_h_KxK', 'W_e_KxM'))

    def init_cell(self, key: jax.Array, num_inputs: int) -> Params:
        """Initializes W_h as an orthogonal matrix, W_e uniformly in ±1/sqrt(D), and b_1 to zero."""
        key_h, key_e = jax.random.split(key)
        return {
            'W_h_KxK': jax.nn.initializers.orthogonal()(key_h, (self.h, self.h)),
            'W_e_KxM': uniform(key_e, (self.h, num_inputs), num_inputs**-0.5),
            'b_1_K': jnp.zeros(self.h),
        }

    def advance(self, cell: Params, state: State, e_SxD: jax.Array, precision: Precision) -> tuple[State, jax.Array]:
        """See `Recurrent.advance`."""
        z_SxK = cell['b_1_K'][None, :] + matmul(state, cell['W_h_KxK'].T, precision)
        h_SxK = jnp.tanh(z_SxK + matmul(e_SxD, cell['W_e_KxM'].T, precision))
        return h_SxK, h_SxK


class Gru(Recurrent):
    """A network of gated recurrent units (GRU)."""

    cell_class = flax.linen.GRUCell

    def advance(self, cell: Params, state: State, e_SxD: jax.Array, precision: Precision) -> tuple[State, jax.Array]:
        """See `Recurrent.advance`. Flax's cell is not used, because its `dtype` argument would also round sums."""

        def dense(name: str, x_SxD: jax.Array) -> jax.Array:
            y_SxK = matmul(x_SxD, cell[name]['kernel'], precision)
            return y_SxK + cell[name]['bias'][None, :] if 'bias' in cell[name] else y_SxK

        r_SxK = jax.nn.sigmoid(dense('ir', e_SxD) + dense('hr', state))
        z_SxK = jax.nn.sigmoid(dense('iz', e_SxD) + dense('hz', state))
        n_SxK = jnp.tanh(dense('in', e_SxD) + r_SxK * dense('hn', state))
        h_SxK = (1.0 - z_SxK) * n_SxK + z_SxK * state
        return h_SxK, h_SxK


class Lstm(Recurrent):
    """A long short-term memory (LSTM) network. The state of a layer is (c, h)."""

    cell_class = flax.linen.OptimizedLSTMCell

    def start_cell(self, num_streams: int) -> State:
        """Returns the zero state (c, h), each S x K."""
        zeros_SxK = jnp.zeros((num_streams, self.h))
        return zeros_SxK, jnp.zeros_like(zeros_SxK)

    def read(
        self,
        cell: Params,
        state: State,
        e_TxSxD: jax.Array,
        precision: Precision,
        keep_TxSx1: jax.Array | None = None,
    ) -> tuple[State, jax.Array]:
        """See `Recurrent.read`."""
        return lstm.read(cell, state, e_TxSxD, precision, keep_TxSx1)


def _drop_recurrent_weights(keys: Keys | None, cell: Params, rate: float) -> Params:
    """Applies dropout to the state-to-state weights, whose names begin with h or W_h."""
    if keys is None or not rate:
        return cell

    def drop(path: tuple[Any, ...], weight: jax.Array) -> jax.Array:
        name = path[0].key
        if weight.ndim < 2 or not name.startswith(('h', 'W_h')):
            return weight
        return drop_weights(jax.random.fold_in(keys.shared, zlib.crc32(name.encode())), weight, rate)

    return jax.tree_util.tree_map_with_path(drop, cell)
