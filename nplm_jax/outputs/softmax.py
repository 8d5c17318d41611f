"""The softmax over all words: scores, log-probabilities and exact NLL.

Dims: V vocabulary, B batch, D width of one array of features, L words specific to one example.
"""

import dataclasses
import functools
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp

from nplm_jax.config.component import between, key
from nplm_jax.nn import Precision, matmul
from nplm_jax.outputs.output_layer import BIAS, Features, OutputLayer, Params


class Scorer:
    """Computes scores y of words from their rows: here b + the sum of the output matrices times their features."""

    def scores(self, params: Params, features: Features, precision: Precision = 'float32') -> jax.Array:
        """Returns the scores of the words with rows in `params`, V x B, float32."""
        return scores(params, features, precision)

    def gathered_scores(self, shared: Params, per_example: Params, features: Features) -> jax.Array:
        """Returns the scores of L words per example, B x L, float32; their rows are B x L x D."""
        return gathered_scores(per_example, features)


LINEAR = Scorer()
NLL_SCORES = 2**19  # scores that stay in a CPU's cache, 2 MiB
TEACHER_WEIGHT = 0.5  # default of output.teacher_weight


@dataclasses.dataclass(frozen=True, kw_only=True)
class Softmax(OutputLayer):
    """P(w) = exp(y_w) / sum over all words of exp(y). Subclasses define the training loss.

    Attributes:
        scorer: Computes y.
    """

    precision: Precision = key(
        'auto',
        'precision of matrix products over |V|: float32 | bfloat16 | auto (bfloat16 on accelerators and on processors '
        'where a first measurement finds it clearly faster); sums and parameters stay float32',
    )
    teacher: str = key(
        '',
        'for full and sampled: comma-separated finished runs of networks over the same vocabulary; the mean of their '
        'distributions is learned in addition to the targets',
    )
    teacher_weight: Annotated[float, between(0, 1)] = key(
        TEACHER_WEIGHT,
        'for full and sampled: weight of output.teacher in the loss; the targets have the remaining weight',
    )
    scorer: ClassVar[Scorer] = LINEAR
    takes_new_words = True

    def log_probabilities(self, params: Params, features: Features) -> jax.Array:
        """See `OutputLayer.log_probabilities`."""
        return log_softmax(self.scorer.scores(params, features)).T

    def nll(self, params: Params, features: Features, targets_B: jax.Array) -> jax.Array:
        """See `OutputLayer.nll`. On a CPU, at most NLL_SCORES of the V x B scores are in memory at once."""
        rows_in_cache = max(1, NLL_SCORES // len(targets_B))
        nll = functools.partial(_nll, self.scorer)
        in_cache, at_once = (functools.partial(nll, max_rows) for max_rows in (rows_in_cache, len(params[BIAS])))
        return jax.lax.platform_dependent(params, features, targets_B, cpu=in_cache, default=at_once)


def scores(params: Params, features: Features, precision: Precision = 'float32') -> jax.Array:
    """Computes y = b + the sum of the output matrices times their features (the paper's equation 1).

    Args:
        params: b and the output matrices, V x D.
        features: The features for each output matrix.
        precision: The precision of the factors.

    Returns:
        y_VxB, float32, words x examples.
    """
    y_VxB = sum(matmul(params[name], inputs_BxD.T, precision) for name, inputs_BxD in features.items())
    return params[BIAS][:, None] + y_VxB


def gathered_scores(params: Params, features: Features) -> jax.Array:
    """Computes the scores of L words per example from gathered rows.

    Args:
        params: The gathered rows of b, B x L, and of the output matrices, B x L x D.
        features: The features for each output matrix.

    Returns:
        y_BxL, float32.
    """
    return params[BIAS] + sum(jnp.sum(params[name] * x_BxD[:, None, :], axis=2) for name, x_BxD in features.items())


def scorer_of(layer: OutputLayer) -> Scorer | None:
    """Returns the scorer of a softmax layer; None for a layer with another distribution, such as a plug-in's."""
    if isinstance(layer, Softmax) and type(layer).log_probabilities is Softmax.log_probabilities:
        return layer.scorer
    return None


def probabilities(layer: OutputLayer, params: Params, features: Features, precision: Precision) -> jax.Array:
    """Returns P(w | features) of all words, B x V, float32.

    Args:
        layer: The output layer.
        params: The parameters of the layer.
        features: The features for the layer.
        precision: The precision of the factors of products over V, in layers with a softmax.
    """
    if (scorer := scorer_of(layer)) is None:
        return jnp.exp(layer.log_probabilities(params, features))
    return jax.nn.softmax(scorer.scores(params, features, precision), axis=0).T


def log_softmax(y_VxB: jax.Array) -> jax.Array:
    """Returns log P(word) = y - log sum exp y, V x B, nats. Numerically stable."""
    return jax.nn.log_softmax(y_VxB, axis=0)


def _nll(scorer: Scorer, max_rows: int, params: Params, features: Features, targets_B: jax.Array) -> jax.Array:
    """Returns -log P(target) of each example, B, from the scores of at most `max_rows` words R at a time."""
    tables, V, B = {name: params[name] for name in (*features, BIAS)}, len(params[BIAS]), len(targets_B)

    def add_words(sums: tuple[jax.Array, ...], start: jax.Array, num_words: int) -> tuple[jax.Array, ...]:
        max_B, normaliser_B, target_B = sums
        rows = {name: jax.lax.dynamic_slice_in_dim(table, start, num_words) for name, table in tables.items()}
        y_RxB = scorer.scores(params | rows, features)
        new_max_B = jax.lax.stop_gradient(jnp.maximum(max_B, jnp.max(y_RxB, axis=0)))
        normaliser_B = normaliser_B * jnp.exp(max_B - new_max_B) + jnp.sum(jnp.exp(y_RxB - new_max_B[None, :]), axis=0)
        rows_B = targets_B - start
        found_B = jnp.take_along_axis(y_RxB, jnp.clip(rows_B, 0, num_words - 1)[None, :], axis=0)[0]
        return new_max_B, normaliser_B, jnp.where((rows_B >= 0) & (rows_B < num_words), found_B, target_B)

    num_first = V % max_rows or max_rows
    sums = add_words((jnp.full(B, -jnp.inf), jnp.zeros(B), jnp.zeros(B)), jnp.int32(0), num_first)
    starts = jnp.arange(num_first, V, max_rows)
    if len(starts):
        sums = jax.lax.scan(lambda sums, start: (add_words(sums, start, max_rows), None), sums, starts)[0]
    max_B, normaliser_B, target_B = sums
    return max_B + jnp.log(normaliser_B) - target_B


def cross_entropy(y_VxB: jax.Array, targets_B: jax.Array) -> jax.Array:
    """Returns -log P(target) of each example, B, nats."""
    picked_B = jnp.take_along_axis(y_VxB, targets_B[None, :], axis=0)[0]
    return jax.nn.logsumexp(y_VxB, axis=0) - picked_B
