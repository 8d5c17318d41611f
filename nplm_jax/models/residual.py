"""The window made modern: the last words' features and averages of older ones, through residual layers, to a tied C.

x = (e_t, ..., e_{t-n+2}, averages of the n-1 words before these, of the 2(n-1) before those, ...), e_t = C(w_{t-1});
z_0 = H x + d; z_l = z_{l-1} + B_l relu(A_l norm(z_{l-1}) + a_l); y = b + C (P norm(z_L)).

Words are read as parallel streams, so that each word's features are gathered once and not for each window that it is
in. Dims: V vocabulary, M features a word (m), K hidden units (h), F units inside a layer, P inputs, S streams, T words
of a stream, B = S * T examples, stream by stream, R words that are carried.

References:
    Sun and Iyyer, Revisiting simple neural probabilistic language models, 2021.
"""

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp

from nplm_jax.config import Settings
from nplm_jax.data import dataset
from nplm_jax.data.corpora import Span
from nplm_jax.models.body import EMBEDDING, Body, Carry
from nplm_jax.outputs.output_layer import Features, Params
from nplm_jax.utils.errors import require
from nplm_jax.utils.nn import Axis, Precision, dropout, matmul, uniform


@dataclasses.dataclass(frozen=True)
class Residual(Body):
    """See the module.

    Attributes:
        m: Features a word.
        h: Hidden units between layers.
        window: How many of the last words' features are inputs themselves (n-1).
        averages: How many averages of older words are inputs.
        layers: Residual layers.
        expansion: Units inside a layer, as a multiple of h.
        tied: Whether C is the output matrix.
        dropout: Share of the features and of the units inside a layer that training zeroes.
        output_dropout: Share of what the output matrix multiplies that training zeroes.
        word_dropout: Share of the words whose features training zeroes.
        variational: Whether one dropout mask serves all words of a stream in an update.
        stream_length: Words of a stream that an update reads.
        precision: What the products are rounded to in training.
    """

    m: int
    h: int
    window: int
    averages: int
    layers: int
    expansion: int
    tied: bool
    dropout: float
    output_dropout: float
    word_dropout: float
    variational: bool
    stream_length: int
    precision: Precision
    num_context = 1

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Returns the body. Raises: BadInput for direct connections, no units, or a batch of unequal streams."""
        model, train = settings.model, settings.train
        require(not model.direct, 'model.direct', model.direct, 'must be False for model.family=residual')
        require(model.h > 0, 'model.h', model.h, 'must be 1 or more for model.family=residual')
        allowed = f'must be a multiple of train.bptt_length={train.bptt_length}'
        require(train.batch_size % train.bptt_length == 0, 'train.batch_size', train.batch_size, allowed)
        return cls(
            m=model.m,
            h=model.h,
            window=model.n - 1,
            averages=settings.residual.averages,
            layers=model.layers,
            expansion=settings.residual.expansion,
            tied=model.tied,
            dropout=model.dropout,
            output_dropout=model.dropout if model.output_dropout < 0 else model.output_dropout,
            word_dropout=model.word_dropout,
            variational=model.variational,
            stream_length=train.bptt_length,
            precision=model.precision,
        )

    @property
    def reach(self) -> int:
        """How many words before a target have an influence."""
        return self.window * 2**self.averages

    @property
    def warm_up(self) -> int:  # type: ignore[override]
        """The words that are read before a span is scored: all that have an influence."""
        return self.reach

    @property
    def widths(self) -> dict[str, int]:
        """U, or a tied C, multiplies the last layer's output."""
        return {EMBEDDING: self.m} if self.tied else {'U_VxK': self.h}

    def init(self, key: jax.Array, vocabulary_size: int) -> Params:
        """Returns C uniform in +-0.1, matrices uniform in +-1/sqrt(inputs), B_l zero."""
        key_C, key_H, key_P, key_layers = jax.random.split(key, 4)
        K, F, P = self.h, self.h * self.expansion, (self.window + self.averages) * self.m
        layers = {}
        for i, layer_key in enumerate(jax.random.split(key_layers, self.layers)):
            A_KxF = uniform(layer_key, (K, F), K**-0.5)
            layers[f'layer_{i}'] = {'A_KxF': A_KxF, 'a_F': jnp.zeros(F), 'B_FxK': jnp.zeros((F, K)), 'g_K': jnp.ones(K)}
        params = {
            EMBEDDING: uniform(key_C, (vocabulary_size, self.m), 0.1),
            'H_PxK': uniform(key_H, (P, K), P**-0.5 * 10),
            'd_K': jnp.zeros(K),
            'g_K': jnp.ones(K),
            'layers': layers,
        }
        return params | ({'P_KxM': uniform(key_P, (K, self.m), K**-0.5)} if self.tied else {})

    def features(
        self, params: Params, e_BxNxM: jax.Array, carry: Carry, key: jax.Array | None = None, axis: Axis = None
    ) -> tuple[Features, Carry]:
        """See `Body.features`. No gradient goes back to the carried words."""
        S, M = len(carry), self.m
        B, precision = len(e_BxNxM), self.precision if key is not None else 'float32'
        e_BxM, number = e_BxNxM[:, 0], 0

        def drop(values_BxD: jax.Array, rate: float) -> jax.Array:
            nonlocal number
            number += 1
            if key is None or not rate:
                return values_BxD
            rows_per_mask = B // S if self.variational else 1
            return dropout(jax.random.fold_in(key, number), values_BxD, rate, axis, rows_per_mask)

        if key is not None and self.word_dropout:
            e_BxM = e_BxM * dropout(key, jnp.ones((B, 1)), self.word_dropout, axis)
        e_BxM = drop(e_BxM, self.dropout)
        e_SxLxM = jnp.concatenate([jax.lax.stop_gradient(carry), e_BxM.reshape(S, -1, M)], axis=1)
        x_BxP = self.inputs(e_SxLxM).reshape(B, -1)
        z_BxK = matmul(x_BxP, params['H_PxK'], precision) + params['d_K'][None, :]
        for i in range(self.layers):
            layer = params['layers'][f'layer_{i}']
            norm_BxK = jax.nn.standardize(z_BxK, axis=1) * layer['g_K'][None, :]
            inside_BxF = jax.nn.relu(matmul(norm_BxK, layer['A_KxF'], precision) + layer['a_F'][None, :])
            z_BxK = z_BxK + matmul(drop(inside_BxF, self.dropout), layer['B_FxK'], precision)
        out = jax.nn.standardize(z_BxK, axis=1) * params['g_K'][None, :]
        if self.tied:
            out = matmul(drop(out, self.dropout), params['P_KxM'], precision)
        return dict.fromkeys(self.widths, drop(out, self.output_dropout)), e_SxLxM[
            :, e_SxLxM.shape[1] - carry.shape[1] :
        ]

    def inputs(self, e_SxLxM: jax.Array) -> jax.Array:
        """Returns x for each of the last words of each stream, S x T x P; the first R of the L words are carried."""
        first = self.reach - 1
        slots = [e_SxLxM[:, first - i : e_SxLxM.shape[1] - i] for i in range(self.window)]
        T, size = e_SxLxM.shape[1] - first, self.window
        # sums[:, i]: of `size` words from word i on. Doubled, since differences of running sums would round.
        num_sums = e_SxLxM.shape[1] - size + 1
        sums = e_SxLxM[:, :num_sums]
        for i in range(1, size):
            sums = sums + e_SxLxM[:, i : num_sums + i]
        for _ in range(self.averages):
            start = first + 1 - 2 * size
            slots.append(sums[:, start : start + T] / size**0.5)
            sums = sums[:, :-size] + sums[:, size:]
            size *= 2
        return jnp.concatenate(slots, axis=2)

    def start(self, num_streams: int) -> Carry:
        """Returns zeros for the features of the words before, S x R x M."""
        return jnp.zeros((num_streams, self.reach - 1, self.m))

    def num_streams(self, batch_size: int) -> int:
        """Returns S: an update reads `stream_length` words of each stream."""
        return batch_size // self.stream_length

    def epoch_positions(self, seed: int, epoch: int, train: Span, batch_size: int) -> jax.Array:
        """See `Body.epoch_positions`: the next words of each stream."""
        return dataset.stream_order(seed, epoch, train, self.num_streams(batch_size), self.stream_length)
