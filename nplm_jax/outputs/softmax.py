"""The softmax over all words: scores, log-probabilities and exact loss, whose gradient is in `blockwise`.

Dims: V vocabulary, B batch, D width of one array of features, L words that belong to one example.
"""

import dataclasses
from collections.abc import Sequence
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp

from nplm_jax.config.component import CountOrZero, between, key
from nplm_jax.data.batches import Batch
from nplm_jax.nn import Precision, matmul
from nplm_jax.outputs.blockwise import blockwise_cross_entropy, blockwise_distillation
from nplm_jax.outputs.output_layer import BIAS, Features, Losses, OutputLayer, Params
from nplm_jax.outputs.teacher import Teacher
from nplm_jax.utils.errors import require

TEACHER_WEIGHT = 0.5  # unless output.teacher_weight says otherwise


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

    def probabilities(self, params: Params, features: Features, precision: Precision) -> jax.Array:
        """See `OutputLayer.probabilities`."""
        if self._has_own_distribution():
            return super().probabilities(params, features, precision)
        return jax.nn.softmax(self.scorer.scores(params, features, precision), axis=0).T

    def scores_of(
        self,
        params: Params,
        features: Features,
        targets_B: jax.Array,
        samples_S: jax.Array,
        tables: Sequence[str],
        precision: Precision,
    ) -> tuple[jax.Array, jax.Array]:
        """See `OutputLayer.scores_of`. Computes only the scores of these words."""
        if self._has_own_distribution():
            return super().scores_of(params, features, targets_B, samples_S, tables, precision)
        shared = params | {name: params[name][samples_S] for name in tables}
        per_example = {name: params[name][targets_B][:, None] for name in tables}
        target_B = self.scorer.gathered_scores(shared, per_example, features)[:, 0]
        return target_B, self.scorer.scores(shared, features, precision)

    def _has_own_distribution(self) -> bool:
        """Whether a plug-in predicts by something else than the softmax of the scorer."""
        return type(self).log_probabilities is not Softmax.log_probabilities


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
    teacher: str = key(
        '',
        'of full and sampled: finished runs of networks over the same words, separated by commas; the mean of their '
        'distributions is learned beside the targets',
    )
    teacher_weight: Annotated[float, between(0, 1)] = key(
        TEACHER_WEIGHT,
        'of full and sampled: the share of output.teacher in what is learned; the rest is that of the target',
    )

    def check(self) -> None:
        """See `Part.check`. A layer with a loss of its own takes no teacher."""
        check_teacher(self.teacher, self.teacher_weight, type(self).loss is not FullSoftmax.loss)

    def loss(self, params: Params, features: Features, batch: Batch, axis: str | None = None) -> jax.Array:
        """See `OutputLayer.loss`. Never makes a V x B array: see `blockwise_cross_entropy`."""
        terms = tuple((params[name], inputs_BxD) for name, inputs_BxD in features.items())
        return blockwise_cross_entropy(terms, params[BIAS], batch.targets_B, self.precision, self.block_size, axis)

    def distillation_loss(
        self, params: Params, features: Features, batch: Batch, teachers: Sequence[Teacher]
    ) -> Losses:
        """Returns the cross-entropy with the targets and the teachers, and the mean NLL.

        Args:
            params: The parameters.
            features: The body's features of the batch's examples.
            batch: The examples.
            teachers: The teachers, with their features of the same examples.
        """
        terms = tuple((params[name], inputs_BxD) for name, inputs_BxD in features.items())
        weight, args = self.teacher_weight, (terms, params[BIAS], batch.targets_B, tuple(teachers))
        return blockwise_distillation(*args, weight, self.precision, self.block_size)


def check_teacher(teacher: str, weight: float, has_own_loss: bool) -> None:
    """Raises BadInput if there is a teacher and the layer's loss takes none, or a weight and no teacher."""
    is_read = bool(teacher) or weight == TEACHER_WEIGHT
    require(is_read, 'output.teacher_weight', weight, 'needs output.teacher')
    allowed = 'must be empty for an output layer whose loss takes no teacher; full and sampled do'
    require(not (teacher and has_own_loss), 'output.teacher', teacher, allowed)


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
