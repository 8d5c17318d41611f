"""The softmax over all words: scores, log-probabilities and the layer whose training loss is exact.

Dims: V vocabulary, B batch, D width of one array of features, L words that belong to one example.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from nplm_jax.data.dataset import Batch
from nplm_jax.outputs.blockwise import blockwise_cross_entropy
from nplm_jax.outputs.output_layer import BIAS, Features, OutputLayer, Params
from nplm_jax.utils.checked_fields import CountOrZero, key
from nplm_jax.utils.nn import Precision, matmul


class Scorer:
    """Computes the scores y of words from their rows: here b + the sum of the output matrices times their features."""

    def scores(self, params: Params, features: Features, precision: Precision = 'float32') -> jax.Array:
        """Returns the scores of the words whose rows `params` holds, V x B, float32."""
        return scores(params, features, precision)

    def gathered_scores(self, shared: Params, per_example: Params, features: Features) -> jax.Array:
        """Returns the scores of L words of each example, B x L, float32; their rows are B x L x D."""
        return gathered_scores(per_example, features)


LINEAR = Scorer()


class Softmax(OutputLayer):
    """P(w) = exp(y_w) / sum over all words of exp(y); subclasses define the training loss.

    Attributes:
        scorer: Computes y.
    """

    scorer: ClassVar[Scorer] = LINEAR
    takes_new_words = True

    def log_probabilities(self, params: Params, features: Features) -> jax.Array:
        """See `OutputLayer.log_probabilities`."""
        return log_softmax(self.scorer.scores(params, features)).T

    def nll(self, params: Params, features: Features, targets_B: jax.Array) -> jax.Array:
        """See `OutputLayer.nll`."""
        return cross_entropy(self.scorer.scores(params, features), targets_B)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FullSoftmax(Softmax):
    """The softmax over all words, trained by its exact mean NLL."""

    precision: Precision = key(
        'auto',
        'of full, sampled and nce: matrix products over |V| in float32 | bfloat16 | auto (bfloat16 where the processor '
        'or the accelerator has instructions for it); sums and parameters stay float32',
    )
    block_size: CountOrZero = key(
        0,
        'of full: number of examples whose |V| scores are in memory at once; '
        '0: 256 on a CPU, 1024 on a TPU, 4096 on a GPU',
    )

    def loss(self, params: Params, features: Features, batch: Batch, axis: str | None = None) -> jax.Array:
        """See `OutputLayer.loss`. Never makes a V x B array: see `blockwise_cross_entropy`."""
        terms = tuple((params[name], inputs_BxD) for name, inputs_BxD in features.items())
        return blockwise_cross_entropy(terms, params[BIAS], batch.targets_B, self.precision, self.block_size, axis)


def scores(params: Params, features: Features, precision: Precision = 'float32') -> jax.Array:
    """Computes y = b + the sum of the output matrices times their features (the paper's equation 1).

    Args:
        params: b and the output matrices, V x D.
        features: The features that each output matrix multiplies.
        precision: Of the factors.

    Returns:
        y_VxB, float32, words x examples.
    """
    y_VxB = sum(matmul(params[name], inputs_BxD.T, precision) for name, inputs_BxD in features.items())
    return params[BIAS][:, None] + y_VxB


def gathered_scores(params: Params, features: Features) -> jax.Array:
    """Computes the scores of L words of each example from the rows that were gathered for them.

    Args:
        params: The rows of b, B x L, and of the output matrices, B x L x D.
        features: The features that each output matrix multiplies.

    Returns:
        y_BxL, float32.
    """
    return params[BIAS] + sum(jnp.sum(params[name] * x_BxD[:, None, :], axis=2) for name, x_BxD in features.items())


def log_softmax(y_VxB: jax.Array) -> jax.Array:
    """Returns log P(word) = y - log sum exp y, V x B, nats; stable for finite scores of any size."""
    return jax.nn.log_softmax(y_VxB, axis=0)


def cross_entropy(y_VxB: jax.Array, targets_B: jax.Array) -> jax.Array:
    """Returns -log P(target) of each example, B, nats."""
    picked_B = jnp.take_along_axis(y_VxB, targets_B[None, :], axis=0)[0]
    return jax.nn.logsumexp(y_VxB, axis=0) - picked_B
