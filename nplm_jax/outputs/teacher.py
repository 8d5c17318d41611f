"""Teachers, whose probabilities a student's loss reads beside the targets.

The student learns from (1 - weight) onehot(target) + weight q, where q is the mean of the teachers' distributions.
Dims: V vocabulary, B batch, S words that all examples share, K teachers.

References:
    Hinton, Vinyals and Dean, Distilling the knowledge in a neural network, 2015.
"""

import functools
from collections.abc import Sequence

import flax.struct
import jax
import jax.numpy as jnp

from nplm_jax.nn import Precision
from nplm_jax.outputs.output_layer import Features, OutputLayer, Params
from nplm_jax.outputs.softmax import TEACHER_WEIGHT, Scorer, Softmax
from nplm_jax.utils.errors import require


@flax.struct.dataclass
class Teacher:
    """The output layer of a teacher and what its body read.

    Attributes:
        layer: The output layer.
        tables: Names of the parameters with one row per output word.
        params: The teacher's parameters; constants for the student's gradient.
        features: The features of the student's examples.
    """

    layer: OutputLayer = flax.struct.field(pytree_node=False)
    tables: tuple[str, ...] = flax.struct.field(pytree_node=False)
    params: Params
    features: Features


def mean_probabilities(teachers: Sequence[Teacher], precision: Precision) -> jax.Array:
    """Returns q, the mean of the teachers' distributions, B x V, float32.

    Args:
        teachers: One teacher or more.
        precision: Of the factors of products over V, for teachers with a softmax.
    """
    return _mean([probabilities(t.layer, t.params, t.features, precision) for t in teachers])


def probabilities(layer: OutputLayer, params: Params, features: Features, precision: Precision) -> jax.Array:
    """Returns P(w | features) of all words, B x V, float32.

    Args:
        layer: The output layer.
        params: Its parameters.
        features: Its features.
        precision: Of the factors of products over V, in a layer with a softmax.
    """
    if (scorer := _scorer(layer)) is None:
        return jnp.exp(layer.log_probabilities(params, features))
    return jax.nn.softmax(scorer.scores(params, features, precision), axis=0).T


def word_scores(
    teacher: Teacher, targets_B: jax.Array, samples_S: jax.Array, precision: Precision
) -> tuple[jax.Array, jax.Array]:
    """Returns log P of some words up to a constant of each example, float32, nats; with a softmax from their rows only.

    Args:
        teacher: The teacher.
        targets_B: One word of each example, int32.
        samples_S: Words that all examples share, int32.
        precision: See `probabilities`.

    Returns:
        Those of the targets, B, and of the samples, S x B.
    """
    params, features = teacher.params, teacher.features
    if (scorer := _scorer(teacher.layer)) is None:
        log_p_BxV = teacher.layer.log_probabilities(params, features)
        return jnp.take_along_axis(log_p_BxV, targets_B[:, None], axis=1)[:, 0], log_p_BxV[:, samples_S].T
    shared = params | {name: params[name][samples_S] for name in teacher.tables}
    per_example = {name: params[name][targets_B][:, None] for name in teacher.tables}
    target_B = scorer.gathered_scores(shared, per_example, features)[:, 0]
    return target_B, scorer.scores(shared, features, precision)


def _scorer(layer: OutputLayer) -> Scorer | None:
    """Returns the scorer whose softmax a layer predicts by; None for another distribution, as a plug-in may have."""
    if isinstance(layer, Softmax) and type(layer).log_probabilities is Softmax.log_probabilities:
        return layer.scorer
    return None


def candidate_probabilities(
    teachers: Sequence[Teacher],
    targets_B: jax.Array,
    samples_S: jax.Array,
    log_inclusion_prob_S: jax.Array,
    precision: Precision,
) -> tuple[jax.Array, jax.Array]:
    """Estimates q from the target and the other samples, as a sampled loss estimates the student's distribution.

    A teacher's estimate is exp(y) of the target and exp(y) / P(included) of each other sample, divided by their sum. It
    equals the teacher's distribution when all words are samples.

    Args:
        teachers: One teacher or more.
        targets_B: The targets, int32.
        samples_S: The samples, int32, all distinct.
        log_inclusion_prob_S: log P(included) of the samples, nats.
        precision: See `mean_probabilities`.

    Returns:
        q of the target, B, and of the samples, S x B, 0 where the sample is the target. They sum to one.
    """
    is_target_SxB = samples_S[:, None] == targets_B[None, :]

    def estimate(t: Teacher) -> jax.Array:
        target_B, y_SxB = word_scores(t, targets_B, samples_S, precision)
        rest_SxB = jnp.where(is_target_SxB, -jnp.inf, y_SxB - log_inclusion_prob_S[:, None])
        return jax.nn.softmax(jnp.concatenate([target_B[None], rest_SxB]), axis=0)

    q_TxB = jax.lax.stop_gradient(_mean([estimate(t) for t in teachers]))
    return q_TxB[0], q_TxB[1:]


def _mean(arrays: Sequence[jax.Array]) -> jax.Array:
    """Returns the mean of arrays, of which no stack is made."""
    return functools.reduce(jnp.add, arrays) / len(arrays)


def check_teacher(teacher: str, weight: float, has_own_loss: bool) -> None:
    """Raises BadInput if there is a teacher and the layer's loss takes none, or a weight and no teacher."""
    is_read = bool(teacher) or weight == TEACHER_WEIGHT
    require(is_read, 'output.teacher_weight', weight, 'needs output.teacher')
    allowed = 'must be empty for an output layer whose loss takes no teacher; full and sampled do'
    require(not (teacher and has_own_loss), 'output.teacher', teacher, allowed)
