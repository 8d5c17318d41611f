"""The interface of soft targets: distributions of teacher networks, which a student learns in addition to the targets.

The student learns the distribution (1 - weight) onehot(target) + weight q, where q is the mean of the teachers'
distributions. `models.distilled` implements q.

Dims: V vocabulary, B batch, S words shared by all examples.
"""

from typing import Protocol, Self

import jax

from nplm_jax.nn import Precision
from nplm_jax.outputs.output_layer import Features
from nplm_jax.outputs.softmax import TEACHER_WEIGHT
from nplm_jax.utils.errors import require


class SoftTargets(Protocol):
    """A distribution q over the next word for each example, as a pytree that is constant in the student's gradient.

    Attributes:
        features: The arrays from which q is computed, with one row per example.
    """

    @property
    def features(self) -> tuple[Features, ...]:
        """The arrays from which q is computed, with one row per example."""

    def replace(self, features: tuple[Features, ...]) -> Self:
        """Returns the distributions of other examples, given the features of these examples."""

    def probabilities(self, precision: Precision) -> jax.Array:
        """Returns q as a float32 array, B x V.

        Args:
            precision: For layers with a softmax, the precision of the factors in matrix products over V.
        """

    def of_candidates(
        self, targets_B: jax.Array, samples_S: jax.Array, log_inclusion_prob_S: jax.Array, precision: Precision
    ) -> tuple[jax.Array, jax.Array]:
        """Returns q restricted to the candidates of a sampled loss, which are the target and the samples.

        Args:
            targets_B: The targets, int32.
            samples_S: The samples, int32, all distinct.
            log_inclusion_prob_S: log P(included) of the samples, nats.
            precision: See `probabilities`.

        Returns:
            A tuple (q_target_B, q_SxB) of q of the target and of each sample. The value of a sample is 0 if it is the
            target of the example. The values of each example sum to one.
        """


def check_teacher(teacher: str, weight: float, has_own_loss: bool) -> None:
    """Raises BadInput if the loss does not support teachers, or if a teacher weight is set without a teacher."""
    is_read = bool(teacher) or weight == TEACHER_WEIGHT
    require(is_read, 'output.teacher_weight', weight, 'requires output.teacher')
    allowed = 'must be empty, because only output.kind=full and output.kind=sampled support a teacher'
    require(not (teacher and has_own_loss), 'output.teacher', teacher, allowed)
