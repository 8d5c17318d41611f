"""Bodies that train on parallel streams of the corpus.

Dims: V vocabulary, M features per word (m), K hidden units (h).
"""

import dataclasses
from typing import Annotated, Self

import jax
import jax.numpy as jnp

from nplm_jax.config.component import Count, CountOrZero, Share, built, in_range, key
from nplm_jax.data.batches import Layout
from nplm_jax.models.body import Body
from nplm_jax.nn import Keys, Precision, dropout
from nplm_jax.outputs.output_layer import EMBEDDING
from nplm_jax.utils.errors import require

ShareOrDefault = Annotated[float, in_range('must be -1 (as dropout), or at least 0 and below 1', 0, below=1, also=-1)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamBody(Body):
    """A body with layers over parallel streams; without direct connections, and with an optionally tied C.

    Attributes:
        activations: In training, the type of the inputs of recurrent layers and of the largest arrays within layers.
            Sums, states and the features for the output layer are float32.
        bptt_length: Words per stream and update: the length of truncated back-propagation through time.
    """

    m: Count = key(100, 'features per word')
    h: CountOrZero = key(200, 'units of each layer')
    dropout: Share = key(0.25, 'probability with which training zeroes a feature or a unit')
    layers: Count = key(1, 'number of layers')
    tied: bool = key(False, 'use C as the output matrix U too')
    output_dropout: ShareOrDefault = key(
        -1.0, 'dropout of the features that the output matrix multiplies; -1: the value of model.dropout'
    )
    word_dropout: Share = key(0.0, 'probability with which training zeroes all features of a word')
    variational: bool = key(False, 'use one dropout mask for all words of a stream in an update')
    precision: Precision = key(
        'auto', 'of the matrix products before the output layer, in training; values as of output.precision'
    )
    activations: Precision = built('float32')
    bptt_length: Count = key(
        16, 'words per stream in an update; train.batch_size / bptt_length streams run in parallel'
    )
    lookback = 0  # type: ignore[assignment]

    def check(self) -> None:
        """See `Component.check`. Refuses a body without units."""
        require(self.h > 0, 'model.h', self.h, 'must be 1 or more for a network over streams')

    @property
    def layout(self) -> Layout:
        """See `Body.layout`. Parallel streams."""
        return Layout(0, self.bptt_length, over_streams=True)

    def on(self, platform: str) -> Self:
        """Returns the body for a JAX platform: accelerators have activations in bfloat16 where products are."""
        halves = self.precision == 'bfloat16' and platform != 'cpu'
        return dataclasses.replace(self, activations='bfloat16' if halves else 'float32')

    def types(self, keys: Keys | None) -> tuple[Precision, Precision]:
        """Returns the types of the factors of products and of activations: float32 while scoring, without keys."""
        return ('float32', 'float32') if keys is None else (self.precision, self.activations)

    @property
    def output_rate(self) -> float:
        """The dropout rate of the features that the output matrix multiplies."""
        return self.dropout if self.output_dropout < 0 else self.output_dropout

    def drop_words(self, keys: Keys | None, e_SxTxM: jax.Array) -> jax.Array:
        """Returns the word features without those that `model.word_dropout` leaves out."""
        S, T, _ = e_SxTxM.shape
        return e_SxTxM * dropout(keys, jnp.ones((S, T, 1)), self.word_dropout)

    @property
    def mask_dims(self) -> tuple[int, ...]:
        """The axes of S x T x D along which a dropout mask is repeated."""
        return (1,) if self.variational else ()

    @property
    def widths(self) -> dict[str, int]:
        """U, or a tied C, multiplies the last layer's output."""
        return {EMBEDDING: self.m} if self.tied else {'U_VxK': self.h}
