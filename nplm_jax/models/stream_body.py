"""Bodies that train on parallel streams of the corpus.

Dims: V vocabulary, M features per word (m), K hidden units (h).
"""

import dataclasses
from typing import Any

from nplm_jax.config import Settings
from nplm_jax.models.body import Body
from nplm_jax.outputs.output_layer import EMBEDDING
from nplm_jax.utils.errors import require
from nplm_jax.utils.nn import Precision


@dataclasses.dataclass(frozen=True)
class StreamBody(Body):
    """A body with layers over parallel streams; without direct connections, and with an optionally tied C.

    Attributes:
        m: Features per word.
        h: Units of a layer.
        layers: Number of layers.
        tied: Whether C is the output matrix.
        dropout: Dropout rate of the word features and inside the network.
        output_dropout: Dropout rate of the features of the output matrix.
        word_dropout: Dropout rate of whole words: all their features are zeroed.
        variational: Whether all words of a stream in an update share a dropout mask.
        bptt_length: Words per stream and update: the length of truncated back-propagation through time.
        precision: Of the factors of products in training.
    """

    m: int
    h: int
    layers: int
    tied: bool
    dropout: float
    output_dropout: float
    word_dropout: float
    variational: bool
    bptt_length: int = dataclasses.field()
    precision: Precision
    has_state = True
    keys = Body.keys | {
        *('model.m', 'model.h', 'model.layers', 'model.tied', 'model.dropout', 'model.output_dropout'),
        *('model.word_dropout', 'model.variational', 'model.precision', 'train.bptt_length'),
    }

    @classmethod
    def common_fields(cls, settings: Settings) -> dict[str, Any]:
        """Returns the attributes above by name.

        Raises:
            BadInput: The settings have no units, or a batch of unequal streams.
        """
        model, train = settings.model, settings.train
        family = f'for model.family={model.family}'
        require(model.h > 0, 'model.h', model.h, f'must be 1 or more {family}')
        allowed = f'must be a multiple of train.bptt_length={train.bptt_length}'
        require(train.batch_size % train.bptt_length == 0, 'train.batch_size', train.batch_size, allowed)
        names = ('m', 'h', 'layers', 'tied', 'dropout', 'word_dropout', 'variational', 'precision')
        output_dropout = model.dropout if model.output_dropout < 0 else model.output_dropout
        fields = {name: getattr(model, name) for name in names}
        return {**fields, 'output_dropout': output_dropout, 'bptt_length': train.bptt_length}

    @property
    def widths(self) -> dict[str, int]:
        """U, or a tied C, multiplies the last layer's output."""
        return {EMBEDDING: self.m} if self.tied else {'U_VxK': self.h}
