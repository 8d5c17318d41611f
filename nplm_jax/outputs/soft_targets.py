"""The interface of soft targets, the teachers' distributions that a network learns in addition to the targets.

The student learns (1 - weight) onehot(target) + weight q. `models.distilled` implements q.

Dims: V vocabulary, B batch, S words shared by all examples.
"""

from typing import Protocol, Self

import jax

from nplm_jax.nn import Precision
from nplm_jax.outputs.output_layer import Features
from nplm_jax.outputs.softmax import TEACHER_WEIGHT
from nplm_jax.utils.errors import require


class SoftTargets(Protocol):
    """For each example, a distribution q over the next word. This pytree is a constant in the student's gradient.

    Attributes:
        features: Arrays with one row per example, the inputs of q.
    """

    @property
    def features(self) -> tuple[Features, ...]:
        """The inputs of q; see the class attributes."""

    def replace(self, features: tuple[Features, ...]) -> Self:
        """Returns the distributions for the examples with the given features."""

    def probabilities(self, precision: Precision) -> jax.Array:
        """Returns q, B x V, float32.

        Args:
            precision: For layers with a softmax, the precision of the factors in matrix products over V.
        """

    def of_candidates(
        self, targets_B: jax.Array, samples_S: jax.Array, log_inclusion_prob_S: jax.Array, precision: Precision
    ) -> tuple[jax.Array, jax.Array]:
        """Returns q over the target and the samples, the candidates of a sampled loss.

        Args:
            targets_B: The targets, int32.
            samples_S: The samples, int32, all distinct.
            log_inclusion_prob_S: log P(included) of the samples, nats.
            precision: See `probabilities`.

        Returns:
            q of the target, B, and of the samples, S x B, which is 0 if the sample is the target. The values of each
            example sum to one.
        """


def check_teacher(teacher: str, weight: float, has_own_loss: bool) -> None:
    """Raises BadInput if the loss does not support teachers, or if a teacher weight is set without a teacher."""
    is_read = bool(teacher) or weight == TEACHER_WEIGHT
    require(is_read, 'output.teacher_weight', weight, 'requires output.teacher')
    allowed = 'must be empty, because only output.kind=full and output.kind=sampled support a teacher'
    require(not (teacher and has_own_loss), 'output.teacher', teacher, allowed)
