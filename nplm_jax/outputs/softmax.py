"""Implements the softmax over all words, including word scores, log-probabilities and the exact NLL.

Dims: V vocabulary, B batch, D width of a feature array, L words specific to one example, R consecutive words, G groups
of words.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Annotated, ClassVar, TypeVar

import jax
import jax.numpy as jnp

from nplm_jax.config.component import between, key
from nplm_jax.distributed.sharding import MODEL
from nplm_jax.nn import Precision, matmul
from nplm_jax.outputs.output_layer import BIAS, Features, OutputLayer, Params

Sums = TypeVar('Sums')
AddWords = Callable[[Sums, jax.Array, jax.Array], Sums]


class Scorer:
    """Computes the scores y of words from the features and from the words' rows in b and the output matrices.

    In this class, y is b plus the sum over the output matrices of the product of each matrix and its features.
    """

    def scores(self, params: Params, features: Features, precision: Precision = 'float32') -> jax.Array:
        """Returns the float32 score of every word that has a row in `params` for each example, V x B."""
        return scores(params, features, precision)

    def gathered_scores(self, shared: Params, per_example: Params, features: Features) -> jax.Array:
        """Returns the float32 scores of L words per example, B x L.

        Args:
            shared: The parameters that all examples share; see `View.shared`.
            per_example: The rows of the L words of each example, B x L x D (B x L for b).
            features: The features of each example, B x D, by the name of their output matrix.
        """
        return gathered_scores(per_example, features)


LINEAR = Scorer()
MAX_SCORES = 2**19  # number of scores that fit into a CPU's cache (2 MiB)
TEACHER_WEIGHT = 0.5  # default of output.teacher_weight


@dataclasses.dataclass(frozen=True, kw_only=True)
class Softmax(OutputLayer):
    """The softmax P(w) = exp(y_w) / sum over all words of exp(y). Subclasses define the training loss.

    Attributes:
        scorer: The function that computes y.
    """

    precision: Precision = key(
        'auto',
        'precision of matrix products over |V|: float32 | bfloat16 | auto (bfloat16 on accelerators and on processors '
        'where an initial measurement finds it clearly faster); sums and parameters remain in float32',
    )
    teacher: str = key(
        '',
        'for full and sampled: teachers, as comma-separated folders of finished networks with the same vocabulary; '
        "the network also learns the mean of the teachers' distributions",
    )
    teacher_weight: Annotated[float, between(0, 1)] = key(
        TEACHER_WEIGHT,
        'for full and sampled: weight of output.teacher in the loss; the weight of the targets is 1 minus this value',
    )
    scorer: ClassVar[Scorer] = LINEAR
    takes_new_words = True

    def log_probabilities(self, params: Params, features: Features) -> jax.Array:
        """See `OutputLayer.log_probabilities`."""
        return log_softmax(self.scorer.scores(params, features)).T

    def nll(self, params: Params, features: Features, targets_B: jax.Array) -> jax.Array:
        """See `OutputLayer.nll`."""

        def add_words(sums: tuple[jax.Array, ...], y_RxB: jax.Array, start: jax.Array) -> tuple[jax.Array, ...]:
            max_B, normaliser_B, target_B = sums
            new_max_B, scale_B, E_RxB = exponentials(max_B, y_RxB)
            normaliser_B = normaliser_B * scale_B + jnp.sum(E_RxB, axis=0)
            rows_B = targets_B - start
            found_B = jnp.take_along_axis(y_RxB, jnp.clip(rows_B, 0, len(y_RxB) - 1)[None, :], axis=0)[0]
            return new_max_B, normaliser_B, jnp.where((rows_B >= 0) & (rows_B < len(y_RxB)), found_B, target_B)

        B = len(targets_B)
        sums: tuple[jax.Array, ...] = (jnp.full(B, -jnp.inf), jnp.zeros(B), jnp.zeros(B))
        max_B, normaliser_B, target_B = reduce_words(self.scorer, params, features, sums, add_words)
        return max_B + jnp.log(normaliser_B) - target_B


def reduce_words(scorer: Scorer, params: Params, features: Features, sums: Sums, add_words: AddWords[Sums]) -> Sums:
    """Reduces the scores of all words to a single value, such as a sum over the words.

    On a CPU, the scores are computed in blocks of at most MAX_SCORES scores, which fit into the cache, unless the mesh
    of the context (`jax.sharding.get_abstract_mesh`) divides the words over devices.

    Args:
        scorer: The function that computes the scores.
        params: The parameters of the output layer.
        features: The features of the examples.
        sums: The initial value, a pytree of arrays.
        add_words: A function (value, y_RxB, first id) that returns the value after a block of consecutive words. It is
            passed the value before the block, the scores of the words, and the id of the first word.

    Returns:
        The value after all words.
    """
    tables, V = {name: params[name] for name in (*features, BIAS)}, len(params[BIAS])
    (B,) = {len(x) for x in features.values()}

    def in_parts(max_rows: int, sums: Sums) -> Sums:
        def add(sums: Sums, start: jax.Array, num_rows: int) -> Sums:
            rows = {name: jax.lax.dynamic_slice_in_dim(table, start, num_rows) for name, table in tables.items()}
            return add_words(sums, scorer.scores(params | rows, features), start)

        num_first = V % max_rows or max_rows
        sums = add(sums, jnp.int32(0), num_first)
        starts = jnp.arange(num_first, V, max_rows)
        if not len(starts):
            return sums
        return jax.lax.scan(lambda sums, start: (add(sums, start, max_rows), None), sums, starts)[0]

    # Other scorers may read additional word tables, which this function does not split into blocks. A block of a table
    # that is divided over devices would be gathered on every device.
    is_divided = MODEL in jax.sharding.get_abstract_mesh().axis_names
    rows_in_cache = max(1, MAX_SCORES // max(1, B)) if scorer is LINEAR and not is_divided else V
    in_cache, at_once = (functools.partial(in_parts, rows) for rows in (rows_in_cache, V))
    return jax.lax.platform_dependent(sums, cpu=in_cache, default=at_once)


def exponentials(max_B: jax.Array, y_RxB: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Computes the exponentials of a block of scores for a sum over several blocks, without overflow.

    The exponentials are exp(y - m), where m is the largest score of this block and all earlier blocks. If the largest
    score is infinite, m is 0.

    Args:
        max_B: The largest score in the earlier blocks, or -inf for the first block.
        y_RxB: The scores in this block.

    Returns:
        A tuple (max_B, scale_B, E_RxB) of the largest score so far, the factor by which sums of earlier exponentials
        must be multiplied, and the exponentials of this block.
    """
    new_max_B = jax.lax.stop_gradient(jnp.maximum(max_B, jnp.max(y_RxB, axis=0)))
    m_B = jnp.where(jnp.isfinite(new_max_B), new_max_B, 0)
    return new_max_B, jnp.exp(max_B - m_B), jnp.exp(y_RxB - m_B[None, :])


def scores(params: Params, features: Features, precision: Precision = 'float32') -> jax.Array:
    """Computes the scores y of the paper's equation 1: b plus the product of each output matrix and its features.

    Args:
        params: b and the output matrices, V x D.
        features: The features for each output matrix, B x D, by the name of the matrix.
        precision: The precision to which the factors of the matrix products are rounded.

    Returns:
        The score of every word for each example, V x B, float32.
    """
    y_VxB = sum(matmul(params[name], inputs_BxD.T, precision) for name, inputs_BxD in features.items())
    return params[BIAS][:, None] + y_VxB


def gathered_scores(params: Params, features: Features) -> jax.Array:
    """Computes the scores of L words per example from gathered rows.

    Args:
        params: The gathered rows of b, B x L, and of the output matrices, B x L x D.
        features: The features for each output matrix, B x D, by the name of the matrix.

    Returns:
        The scores, B x L, float32.
    """
    return params[BIAS] + sum(jnp.sum(params[name] * x_BxD[:, None, :], axis=2) for name, x_BxD in features.items())


def scorer_of(layer: OutputLayer) -> Scorer | None:
    """Returns the scorer of a layer if P(w) is a softmax of its scores. Otherwise, returns None."""
    if isinstance(layer, Softmax) and type(layer).log_probabilities is Softmax.log_probabilities:
        return layer.scorer
    return None


def probabilities(layer: OutputLayer, params: Params, features: Features, precision: Precision) -> jax.Array:
    """Returns the float32 P(w | features) of all words, B x V.

    Args:
        layer: The output layer.
        params: The parameters of the layer.
        features: The features for the layer.
        precision: For layers with a softmax, the precision of the factors in matrix products over V.
    """
    if (scorer := scorer_of(layer)) is None:
        return jnp.exp(layer.log_probabilities(params, features))
    return jax.nn.softmax(scorer.scores(params, features, precision), axis=0).T


def group_probabilities(layer: OutputLayer, params: Params, features: Features, one_hot_VxG: jax.Array) -> jax.Array:
    """Returns the total float32 probability of each group of words, B x G.

    Args:
        layer: The output layer that defines P(w).
        params: The parameters of the layer.
        features: The features for the layer.
        one_hot_VxG: The one-hot encoding of each word's group, float32. Each word belongs to exactly one group.
    """
    if (scorer := scorer_of(layer)) is None:
        return probabilities(layer, params, features, 'float32') @ one_hot_VxG

    def add_words(sums: tuple[jax.Array, jax.Array], y_RxB: jax.Array, start: jax.Array) -> tuple[jax.Array, jax.Array]:
        max_B, sums_GxB = sums
        new_max_B, scale_B, E_RxB = exponentials(max_B, y_RxB)
        one_hot_RxG = jax.lax.dynamic_slice_in_dim(one_hot_VxG, start, len(y_RxB))
        return new_max_B, sums_GxB * scale_B[None, :] + one_hot_RxG.T @ E_RxB

    B, G = len(next(iter(features.values()))), one_hot_VxG.shape[1]
    sums_GxB = reduce_words(scorer, params, features, (jnp.full(B, -jnp.inf), jnp.zeros((G, B))), add_words)[1]
    return (sums_GxB / jnp.sum(sums_GxB, axis=0, keepdims=True)).T


def log_softmax(y_VxB: jax.Array) -> jax.Array:
    """Returns log P(word) = y - log sum exp y in nats, V x B, in a numerically stable way."""
    return jax.nn.log_softmax(y_VxB, axis=0)


def cross_entropy(y_VxB: jax.Array, targets_B: jax.Array) -> jax.Array:
    """Returns -log P(target) of each example, in nats."""
    return jax.nn.logsumexp(y_VxB, axis=0) - jnp.take_along_axis(y_VxB, targets_B[None, :], axis=0)[0]
