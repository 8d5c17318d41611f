"""The softmax over all words: scores, log-probabilities and the layer whose training loss is exact.

Weights come as parts, pairs of a matrix and the inputs that it multiplies: ((U_VxK, a_BxK), (W_VxP, x_BxP)) of the
paper's equation 1. Dims: V vocabulary, B batch, D inputs of a part, L words that belong to one example.
"""

import dataclasses
from collections.abc import Iterable
from typing import Self

import jax
import jax.numpy as jnp

from nplm_jax.config import OutputSettings
from nplm_jax.outputs.blockwise import Part, blockwise_cross_entropy
from nplm_jax.outputs.output_layer import BIAS, Features, OutputLayer, Params, parts_of
from nplm_jax.utils.nn import Precision, matmul


@dataclasses.dataclass(frozen=True)
class FullSoftmax(OutputLayer):
    """P(w) = exp(y_w) / sum over all words of exp(y), trained by its exact mean NLL.

    Attributes:
        precision: What the products over V are rounded to in training. Evaluation is always float32.
        block_size: Examples whose V scores training holds at once.
    """

    precision: Precision
    block_size: int

    @classmethod
    def from_settings(cls, settings: OutputSettings, vocabulary_size: int) -> Self:
        """Returns the layer; every vocabulary fits."""
        return cls(settings.precision, settings.block_size)

    def loss(self, params: Params, features: Features, targets_B: jax.Array, axis: str | None = None) -> jax.Array:
        """See `OutputLayer.loss`. Never holds a V x B array: see `blockwise_cross_entropy`."""
        parts = tuple(parts_of(params, features))
        return blockwise_cross_entropy(parts, params[BIAS], targets_B, self.precision, self.block_size, axis)

    def log_probabilities(self, params: Params, features: Features) -> jax.Array:
        """See `OutputLayer.log_probabilities`."""
        return log_softmax(scores(params[BIAS], parts_of(params, features))).T

    def nll(self, params: Params, features: Features, targets_B: jax.Array) -> jax.Array:
        """See `OutputLayer.nll`."""
        return cross_entropy(scores(params[BIAS], parts_of(params, features)), targets_B)


def scores(b_V: jax.Array, parts: Iterable[Part], precision: Precision = 'float32') -> jax.Array:
    """Computes y = b + the sum of weights @ inputs over the parts (the paper's equation 1).

    Args:
        b_V: The words' biases.
        parts: Pairs of weights_VxD and inputs_BxD.
        precision: What the factors are rounded to.

    Returns:
        y_VxB, float32, words x examples.
    """
    y_VxB = sum(matmul(weights_VxD, inputs_BxD.T, precision) for weights_VxD, inputs_BxD in parts)
    return b_V[:, None] + y_VxB


def gathered_scores(b_BxL: jax.Array, parts: Iterable[Part]) -> jax.Array:
    """Computes the scores of L words of each example from the rows that were gathered for them.

    Args:
        b_BxL: The words' biases.
        parts: Pairs of weights_BxLxD and inputs_BxD.

    Returns:
        y_BxL, float32.
    """
    return b_BxL + sum(jnp.sum(weights * inputs_BxD[:, None, :], axis=2) for weights, inputs_BxD in parts)


def log_softmax(y_VxB: jax.Array) -> jax.Array:
    """Returns log P(word) = y - log sum exp y, V x B, nats; stable for finite scores of any size."""
    return jax.nn.log_softmax(y_VxB, axis=0)


def cross_entropy(y_VxB: jax.Array, targets_B: jax.Array) -> jax.Array:
    """Returns -log P(target) of each example, B, nats."""
    picked_B = jnp.take_along_axis(y_VxB, targets_B[None, :], axis=0)[0]
    return jax.nn.logsumexp(y_VxB, axis=0) - picked_B
