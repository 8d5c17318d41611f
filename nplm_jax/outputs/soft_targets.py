"""Distributions of the next word that a loss can learn beside the targets: those of teachers, `models.distilled`.

The student learns from (1 - weight) onehot(target) + weight q. Dims: V vocabulary, B batch, S words that all examples
share.
"""

from typing import Protocol, Self

import jax

from nplm_jax.nn import Precision
from nplm_jax.outputs.output_layer import Features
from nplm_jax.outputs.softmax import TEACHER_WEIGHT
from nplm_jax.utils.errors import require


class SoftTargets(Protocol):
    """A distribution q of the next word for each example; a pytree of constants for the student's gradient.

    Attributes:
        features: Arrays with one row per example, from which q is computed.
    """

    @property
    def features(self) -> tuple[Features, ...]:
        """See the attributes."""

    def replace(self, features: tuple[Features, ...]) -> Self:
        """Returns the distributions of other examples."""

    def probabilities(self, precision: Precision) -> jax.Array:
        """Returns q, B x V, float32.

        Args:
            precision: Of the factors of products over V, in a layer with a softmax.
        """

    def of_candidates(
        self, targets_B: jax.Array, samples_S: jax.Array, log_inclusion_prob_S: jax.Array, precision: Precision
    ) -> tuple[jax.Array, jax.Array]:
        """Returns q over the target and the samples, as a sampled loss estimates the student's distribution.

        Args:
            targets_B: The targets, int32.
            samples_S: The samples, int32, all distinct.
            log_inclusion_prob_S: log P(included) of the samples, nats.
            precision: See `probabilities`.

        Returns:
            q of the target, B, and of the samples, S x B, 0 where the sample is the target. They sum to one.
        """


def check_teacher(teacher: str, weight: float, has_own_loss: bool) -> None:
    """Raises BadInput if there is a teacher and the layer's loss takes none, or a weight and no teacher."""
    is_read = bool(teacher) or weight == TEACHER_WEIGHT
    require(is_read, 'output.teacher_weight', weight, 'needs output.teacher')
    allowed = 'must be empty for an output layer whose loss takes no teacher; full and sampled do'
    require(not (teacher and has_own_loss), 'output.teacher', teacher, allowed)
