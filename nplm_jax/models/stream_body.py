"""The base class of bodies that train on parallel streams of the corpus.

Dims: V vocabulary, M features per word (m), K hidden units (h).
"""

import dataclasses
from typing import Annotated, ClassVar, Self

import jax
import jax.numpy as jnp

from nplm_jax.config.component import Count, CountOrZero, Share, in_range, internal, key
from nplm_jax.data.batches import Layout
from nplm_jax.models.body import Body
from nplm_jax.nn import Keys, Precision, dropout
from nplm_jax.outputs.output_layer import EMBEDDING
from nplm_jax.utils.errors import require

ShareOrDefault = Annotated[
    float, in_range('must be -1 (to use model.dropout) or at least 0 and below 1', 0, below=1, also=-1)
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamBody(Body):
    """A body whose layers read parallel streams of the corpus. It supports weight tying but no direct connections.

    Attributes:
        activations: The dtype in training of the inputs of recurrent layers and of the largest arrays inside layers.
            Sums, states and the features for the output layer are always float32.
        bptt_length: The number of words per stream in an update. Backpropagation through time is truncated to this
            length.
        least_units: The smallest allowed value of `h`. It is 2 for bodies with layer normalization, which maps a single
            unit to 0 in every context.
    """

    m: Count = key(100, 'number of features per word')
    h: CountOrZero = key(200, 'number of units per layer')
    dropout: Share = key(0.25, 'dropout rate of features and units during training')
    layers: Count = key(1, 'number of layers')
    tied: bool = key(False, 'tie the output weights U to the features C')
    output_dropout: ShareOrDefault = key(
        -1.0, 'dropout rate of the output features; -1 means the value of model.dropout'
    )
    word_dropout: Share = key(0.0, 'probability of setting all features of a word to zero during training')
    variational: bool = key(False, 'use the same dropout mask for all words of a stream in an update')
    precision: Precision = key(
        'auto',
        'precision of matrix products below the output layer during training; see output.precision for the values',
    )
    activations: Precision = internal('float32')
    bptt_length: Count = key(
        16, 'number of words per stream and update; train.batch_size / bptt_length streams are read in parallel'
    )
    lookback = 0  # type: ignore[assignment]
    least_units: ClassVar[int] = 1

    def check(self) -> None:
        """See `Component.check`. Also rejects a body with too few units."""
        allowed = f'must be {self.least_units} or more for model.family={self.name}'
        require(self.h >= self.least_units, 'model.h', self.h, allowed)

    @property
    def layout(self) -> Layout:
        """See `Body.layout`. The examples form parallel streams."""
        return Layout(0, self.bptt_length, over_streams=True)

    def on(self, platform: str) -> Self:
        """Returns a copy for a JAX platform, with bfloat16 activations on accelerators if `precision` is bfloat16."""
        halves = self.precision == 'bfloat16' and platform != 'cpu'
        return dataclasses.replace(self, activations='bfloat16' if halves else 'float32')

    def types(self, keys: Keys | None) -> tuple[Precision, Precision]:
        """Returns the precision of products and the dtype of activations. If `keys` is None, both are float32."""
        return ('float32', 'float32') if keys is None else (self.precision, self.activations)

    @property
    def output_rate(self) -> float:
        """The dropout rate of the features for the output layer."""
        return self.dropout if self.output_dropout < 0 else self.output_dropout

    def drop_words(self, keys: Keys | None, e_SxTxM: jax.Array) -> jax.Array:
        """Applies dropout to whole words: zeroes all features of a word with probability `model.word_dropout`."""
        S, T, _ = e_SxTxM.shape
        return e_SxTxM * dropout(keys, jnp.ones((S, T, 1)), self.word_dropout)

    @property
    def mask_dims(self) -> tuple[int, ...]:
        """The axes of S x T x D along which the dropout mask is constant: T with variational dropout."""
        return (1,) if self.variational else ()

    @property
    def widths(self) -> dict[str, int]:
        """The width of the only output matrix, which is C with weight tying and U without it."""
        return {EMBEDDING: self.m} if self.tied else {'U_VxK': self.h}
