"""What a body is: the part of a network that reads the words before, and gives the output layer its features.

Dims: V vocabulary, M features a word (m), N context words that `features` is given, B batch, S streams that are read in
parallel, T words of a stream, so that B = S * T.
"""

import abc
from collections.abc import Mapping
from typing import Any, Self

import jax

from nplm_jax.config import Settings
from nplm_jax.data import dataset
from nplm_jax.data.corpora import Span
from nplm_jax.outputs.output_layer import Features, Params
from nplm_jax.utils.nn import Axis

Carry = Any  # a pytree of arrays with one row a stream; None for a body that keeps nothing
EMBEDDING = 'C_VxM'  # every body's parameters have the word features under this name


class Body(abc.ABC):
    """A pure function of parameters from context words to features. Subclasses are frozen dataclasses of plain values.

    The defaults here are those of a window: each example is a stream of its own and nothing is carried on.

    Attributes:
        num_context: N, how many of the words before a target `features` is given.
        warm_up: How many words before a span are read first, when a span of a text is scored.
    """

    num_context: int
    warm_up = 0

    @classmethod
    @abc.abstractmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Returns the body. Raises: BadInput for settings that it cannot have."""

    @property
    @abc.abstractmethod
    def widths(self) -> Mapping[str, int]:
        """The output matrices by name, and the width of each: the last dimension of its features.

        C_VxM may be one: then the words' features are also their output weights (tied).
        """

    @abc.abstractmethod
    def init(self, key: jax.Array, vocabulary_size: int) -> Params:
        """Returns the body's parameters, C_VxM among them."""

    def output_keys(self, key: jax.Array) -> dict[str, jax.Array]:
        """Returns a random key for each output matrix, derived from the key that `init` takes."""
        keys = jax.random.split(jax.random.fold_in(key, 5), len(self.widths))
        return dict(zip(self.widths, keys))

    @abc.abstractmethod
    def features(
        self, params: Params, e_BxNxM: jax.Array, carry: Carry, key: jax.Array | None = None, axis: Axis = None
    ) -> tuple[Features, Carry]:
        """Computes what the output matrices multiply.

        Args:
            params: The parameters; C_VxM is not read.
            e_BxNxM: The features of the N context words of each example, in reading order, stream by stream.
            carry: What the streams carried on to these examples.
            key: A random key for dropout; None switches it off.
            axis: The named axis over which the batch is divided, if it is.

        Returns:
            The features by the name of their matrix, and what the streams carry on.
        """

    def penalty(self, features: Features) -> jax.Array | float:
        """Returns what training adds to the mean NLL because of these features, beside the regulariser."""
        return 0.0

    def start(self, num_streams: int) -> Carry:
        """Returns what streams carry before their first word."""
        return None

    def num_streams(self, batch_size: int) -> int:
        """Returns how many streams a batch of training reads in parallel."""
        return batch_size

    def epoch_positions(self, seed: int, epoch: int, train: Span, batch_size: int) -> jax.Array:
        """Returns the positions in the text in the order in which an epoch trains on them, int32."""
        return dataset.epoch_order(seed, epoch, train)
