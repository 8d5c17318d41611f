"""Recurrent bodies: the words before w_t reach its prediction y = b + U h_t through a state h alone.

rnn: h_t = tanh(b_1 + W_h h_{t-1} + W_e e_t), e_t = C(w_{t-1}). gru and lstm are Flax's cells. Dims: V vocabulary, M
features a word (m), K numbers of the state (h), S streams that are read in parallel, T words of a stream, B = S * T
examples, stream by stream.

References:
    Elman, Finding structure in time, 1990; Mikolov et al., Recurrent neural network based language model, 2010.
    Cho et al., Learning phrase representations using RNN encoder-decoder, 2014.
    Hochreiter and Schmidhuber, Long short-term memory, 1997.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, Self

import flax.linen
import jax
import jax.numpy as jnp

from nplm_jax.config import Settings
from nplm_jax.data import dataset
from nplm_jax.data.corpora import Span
from nplm_jax.models.body import Body, Carry
from nplm_jax.outputs.output_layer import Features, Params
from nplm_jax.utils.errors import require
from nplm_jax.utils.nn import Axis, dropout, uniform


@dataclasses.dataclass(frozen=True)
class Recurrent(Body):
    """What rnn, gru and lstm share: streams, truncated back-propagation through time, dropout.

    Dropout is on the word features and on h on its way to y, never on h on its way to itself (Zaremba et al., 2014).

    Attributes:
        m: Features a word.
        h: Numbers of the state.
        dropout: Share of the features and of h that training zeroes.
        bptt_length: Words of a stream through which an update's gradient goes back.
    """

    m: int
    h: int
    dropout: float
    bptt_length: int
    num_context = 1
    warm_up = 512

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Returns the body. Raises: BadInput for direct connections, no state, or a batch of unequal streams."""
        model, train = settings.model, settings.train
        allowed = f'must be False for model.family={model.family}, which has no direct connections'
        require(not model.direct, 'model.direct', model.direct, allowed)
        require(model.h > 0, 'model.h', model.h, f'must be 1 or more for model.family={model.family}')
        allowed = f'must be a multiple of train.bptt_length={train.bptt_length}'
        require(train.batch_size % train.bptt_length == 0, 'train.batch_size', train.batch_size, allowed)
        name = settings.optimizer.name
        require(name != 'paper', 'optimizer.name', name, f'must be another for model.family={model.family}')
        return cls(model.m, model.h, model.dropout, train.bptt_length)

    @property
    def widths(self) -> dict[str, int]:
        """U multiplies h."""
        return {'U_VxK': self.h}

    def init(self, key: jax.Array, vocabulary_size: int) -> Params:
        """Returns C uniform in +-0.1, and the cell."""
        key_C, _, key_cell = jax.random.split(key, 3)
        return {'C_VxM': uniform(key_C, (vocabulary_size, self.m), 0.1), 'cell': self.init_cell(key_cell)}

    def output_keys(self, key: jax.Array) -> dict[str, jax.Array]:
        """See `Body.output_keys`."""
        return {'U_VxK': jax.random.split(key, 3)[1]}

    @abc.abstractmethod
    def init_cell(self, key: jax.Array) -> Params:
        """Returns the parameters of the cell."""

    @abc.abstractmethod
    def advance(self, cell: Params, carry: Carry, e_SxM: jax.Array) -> tuple[Carry, jax.Array]:
        """Reads one word of each stream. Returns: the next carry, and h, S x K."""

    def features(
        self, params: Params, e_BxNxM: jax.Array, carry: Carry, key: jax.Array | None = None, axis: Axis = None
    ) -> tuple[Features, Carry]:
        """See `Body.features`. The gradient goes back to `carry` and no further."""
        S = jax.tree.leaves(carry)[0].shape[0]
        e_BxM = e_BxNxM[:, 0]
        if key is not None and self.dropout:
            key, key_h = jax.random.split(key)
            e_BxM = dropout(key, e_BxM, self.dropout, axis)
        e_TxSxM = e_BxM.reshape(S, -1, self.m).swapaxes(0, 1)
        step = lambda carry, e_SxM: self.advance(params['cell'], carry, e_SxM)  # noqa: E731
        carry, h_TxSxK = jax.lax.scan(step, jax.lax.stop_gradient(carry), e_TxSxM)
        h_BxK = h_TxSxK.swapaxes(0, 1).reshape(-1, self.h)
        if key is not None and self.dropout:
            h_BxK = dropout(key_h, h_BxK, self.dropout, axis)
        return {'U_VxK': h_BxK}, carry

    def start(self, num_streams: int) -> Carry:
        """Returns zeros, S x K."""
        return jnp.zeros((num_streams, self.h))

    def num_streams(self, batch_size: int) -> int:
        """Returns S: an update reads `bptt_length` words of each stream."""
        return batch_size // self.bptt_length

    def epoch_positions(self, seed: int, epoch: int, train: Span, batch_size: int) -> jax.Array:
        """See `Body.epoch_positions`: the next words of each stream."""
        return dataset.stream_order(seed, epoch, train, self.num_streams(batch_size), self.bptt_length)


class Elman(Recurrent):
    """rnn."""

    def init_cell(self, key: jax.Array) -> Params:
        """Returns W_h orthogonal, W_e uniform in +-1/sqrt(M), b_1 zero."""
        key_h, key_e = jax.random.split(key)
        return {
            'W_h_KxK': jax.nn.initializers.orthogonal()(key_h, (self.h, self.h)),
            'W_e_KxM': uniform(key_e, (self.h, self.m), self.m**-0.5),
            'b_1_K': jnp.zeros(self.h),
        }

    def advance(self, cell: Params, carry: Carry, e_SxM: jax.Array) -> tuple[Carry, jax.Array]:
        """See `Recurrent.advance`."""
        h_SxK = jnp.tanh(cell['b_1_K'][None, :] + carry @ cell['W_h_KxK'].T + e_SxM @ cell['W_e_KxM'].T)
        return h_SxK, h_SxK


class _FlaxCell(Recurrent):
    """A cell of Flax's, with Flax's initialisation."""

    cell_class: Callable[[int], flax.linen.RNNCellBase]

    def init_cell(self, key: jax.Array) -> Params:
        """Returns the parameters of Flax's cell."""
        return self.cell_class(self.h).init(key, self.start(1), jnp.zeros((1, self.m)))['params']

    def advance(self, cell: Params, carry: Carry, e_SxM: jax.Array) -> tuple[Carry, jax.Array]:
        """See `Recurrent.advance`."""
        result: Any = self.cell_class(self.h).apply({'params': cell}, carry, e_SxM)
        return result


class Gru(_FlaxCell):
    """gru."""

    cell_class = flax.linen.GRUCell


class Lstm(_FlaxCell):
    """lstm. The carry is (c, h)."""

    cell_class = flax.linen.OptimizedLSTMCell

    def start(self, num_streams: int) -> Carry:
        """Returns zeros, two of S x K."""
        zeros_SxK = jnp.zeros((num_streams, self.h))
        return zeros_SxK, jnp.zeros_like(zeros_SxK)
