"""What an output layer is: from a network's features to P(w), and to the loss that training minimises.

An output layer multiplies each of its weight matrices with one array of features. The body says which matrices there
are and how wide they are: the paper's network has U (V x K, multiplied with the hidden units a) and W (V x P,
multiplied with the word features x). Features come by the name of their matrix: `{'U_VxK': a_BxK, 'W_VxP': x_BxP}`.

Dims: B batch, V vocabulary, D width of one array of features, L output rows that belong to one example, S output rows
that all examples share.
"""

import abc
from collections.abc import Mapping
from typing import Any, Self

import jax
import numpy as np

from nplm_jax.config import OutputSettings
from nplm_jax.utils import nn

Params = dict[str, Any]  # arrays by the paper's letters, float32
Features = dict[str, jax.Array]  # name of an output matrix -> what it is multiplied with, B x D, float32
BIAS = 'b_V'


class OutputLayer(abc.ABC):
    """P(w | features) over V words, and its training loss. Subclasses are frozen dataclasses of plain values.

    Attributes:
        uses_sparse_updates: Whether a training step reads and changes only some rows of the output matrices. See
            `SparseOutputLayer`.
    """

    uses_sparse_updates = False

    @classmethod
    @abc.abstractmethod
    def from_settings(cls, settings: OutputSettings, vocabulary_size: int) -> Self:
        """Returns the layer. Raises: BadInput when the settings do not fit the vocabulary."""

    def init(
        self, key: jax.Array, keys: Mapping[str, jax.Array], widths: Mapping[str, int], bias_V: jax.Array
    ) -> Params:
        """Returns the layer's parameters: matrices uniform in +-1/sqrt(width), and b.

        Args:
            key: The network's random key, for what a layer has beside the output matrices.
            keys: A random key for each output matrix, by name.
            widths: The width of each output matrix, by name.
            bias_V: What b starts from, float32.
        """
        shapes = {name: (len(bias_V), width) for name, width in widths.items()}
        return {name: nn.uniform(keys[name], shape, shape[1] ** -0.5) for name, shape in shapes.items()} | {
            BIAS: bias_V
        }

    def make_proposal(self, unigram_log_prob_V: np.ndarray) -> Any:
        """Returns the arrays that sampling draws words with; None for a layer that draws no words."""
        return None

    @abc.abstractmethod
    def loss(self, params: Params, features: Features, targets_B: jax.Array, axis: str | None = None) -> jax.Array:
        """Returns the mean NLL of the targets, a float32 scalar in nats a word, to be differentiated.

        Args:
            params: The parameters. Where `axis` is given, arrays with V rows hold this device's rows only.
            features: What the body computed for these examples.
            targets_B: Word ids, int32.
            axis: The named mesh axis over which the V words are divided, None where one device holds all.
        """

    @abc.abstractmethod
    def log_probabilities(self, params: Params, features: Features) -> jax.Array:
        """Returns log P(w | features) of all words exactly, B x V, float32, nats."""

    @abc.abstractmethod
    def nll(self, params: Params, features: Features, targets_B: jax.Array) -> jax.Array:
        """Returns -log P(target | features) of each example exactly, B, float32, nats."""


class SparseOutputLayer(OutputLayer):
    """An output layer whose training loss needs few rows of the output matrices, which alone are read and changed."""

    uses_sparse_updates = True

    def loss(self, params: Params, features: Features, targets_B: jax.Array, axis: str | None = None) -> jax.Array:
        """Returns the exact mean NLL; training uses `sparse_loss` instead."""
        return self.nll(params, features, targets_B).mean()

    @abc.abstractmethod
    def rows(self, targets_B: jax.Array, proposal: Any, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns the output rows that `sparse_loss` needs: B x L of the examples, S that all share; int32.

        Args:
            targets_B: Word ids, int32.
            proposal: What `make_proposal` returned.
            key: A random key.
        """

    @abc.abstractmethod
    def sparse_loss(
        self,
        shared: Params,
        per_example: Params,
        features: Features,
        targets_B: jax.Array,
        shared_S: jax.Array,
        proposal: Any,
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the loss and the mean NLL (exact or estimated), float32 scalars in nats a word.

        Args:
            shared: The parameters, with the rows `shared_S` alone of the output matrices and of b.
            per_example: The rows of the output matrices that belong to each example, B x L x D, and of b, B x L.
            features: What the body computed for these examples.
            targets_B: Word ids, int32.
            shared_S: The numbers of the shared rows, as `rows` returned them.
            proposal: What `make_proposal` returned.
        """


def parts_of(params: Params, features: Features) -> list[tuple[jax.Array, jax.Array]]:
    """Returns each output matrix with the features that it multiplies."""
    return [(params[name], inputs) for name, inputs in features.items()]
