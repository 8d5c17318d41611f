"""Interface of network bodies: from the embedded context words to the features that the output layer multiplies.

Dims: V vocabulary, M features per word (m), N context words, B batch, S streams that are read in parallel, T words of a
stream, so that B = S * T.
"""

import abc
from collections.abc import Mapping
from typing import Any, Self

import jax
import numpy as np

from nplm_jax.config import Settings
from nplm_jax.data import dataset
from nplm_jax.data.corpora import Span
from nplm_jax.outputs.output_layer import Features, Params
from nplm_jax.outputs.softmax import LINEAR, Scorer
from nplm_jax.utils.nn import AxisName, Key

Carry = Any  # a pytree of arrays with one row per stream; None for a body without state


class Body(abc.ABC):
    """Maps context words to features, as pure functions of the parameters. Subclasses are frozen dataclasses.

    The defaults here are those of a window: each example is a stream by itself, and there is no carry.

    Attributes:
        num_context: N, the number of words before a target that `features` takes.
    """

    num_context: int

    @property
    def n(self) -> int | None:
        """The order: a word is predicted from the n - 1 words before it; None for a body with a carry."""
        return None if jax.tree.leaves(self.start(1)) else self.num_context + 1

    @property
    def training_context(self) -> int:
        """Number of words before a target that `features` takes in training: fewer where a batch is read as streams."""
        return self.num_context

    @property
    def burn_in(self) -> int:
        """Number of words read before a scored span to fill the state."""
        return 0

    @classmethod
    @abc.abstractmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Returns the body. Raises BadInput if the settings are impossible."""

    @property
    @abc.abstractmethod
    def widths(self) -> Mapping[str, int]:
        """Width of each output matrix by name: the last dimension of the features it multiplies.

        C_VxM may be one of them: then the words' features are also their output weights (tied).
        """

    @abc.abstractmethod
    def init(self, key: jax.Array, vocabulary_size: int) -> Params:
        """Returns the body's parameters, C_VxM among them."""

    @property
    def scorer(self) -> Scorer:
        """Computes the words' scores from these features and the output matrices."""
        return LINEAR

    def output_keys(self, key: jax.Array) -> dict[str, jax.Array]:
        """Returns a random key for each output matrix, derived from the key that `init` takes."""
        keys = jax.random.split(jax.random.fold_in(key, 5), len(self.widths))
        return dict(zip(self.widths, keys))

    @abc.abstractmethod
    def features(
        self, params: Params, e_BxNxM: jax.Array, carry: Carry, key: Key = None, axis: AxisName = None
    ) -> tuple[Features, Carry]:
        """Computes the features that the output matrices multiply.

        Args:
            params: The parameters; C_VxM is not read.
            e_BxNxM: The features of the N context words of each example, in reading order, stream by stream.
            carry: The carry of the streams before these examples.
            key: A random key for dropout; None switches it off.
            axis: The named axis over which the batch is divided, if it is.

        Returns:
            The features by the name of their matrix, and the carry after these examples.
        """

    def penalty(self, features: Features) -> jax.Array | float:
        """Returns a penalty on these features that training adds to the mean NLL, in addition to the regulariser."""
        return 0.0

    def start(self, num_streams: int) -> Carry:
        """Returns the carry of streams before their first word."""
        return None

    def num_streams(self, batch_size: int) -> int:
        """Returns the number of streams that a training batch reads in parallel."""
        return batch_size

    def epoch_positions(self, seed: int, epoch: int, train: Span, batch_size: int) -> jax.Array:
        """Returns the positions in the corpus in the order in which an epoch trains on them, int32."""
        return dataset.epoch_order(seed, epoch, train)

    def positions_at(self, seed: int, epoch: int, train: Span, batch_size: int, indices: np.ndarray) -> np.ndarray:
        """Returns some elements of the order in which an epoch trains on a corpus that is too long for one array."""
        return dataset.shuffled_positions(seed, epoch, train, indices)
