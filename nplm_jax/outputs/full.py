"""The softmax over all words, trained by its exact loss, whose gradient is in `blockwise`.

Dims: V vocabulary, B batch, D width of one array of features.
"""

import dataclasses
from collections.abc import Sequence

import jax

from nplm_jax.config.component import CountOrZero, key
from nplm_jax.data.batches import Batch
from nplm_jax.outputs.blockwise import blockwise_cross_entropy, blockwise_distillation
from nplm_jax.outputs.output_layer import BIAS, Features, Losses, Params
from nplm_jax.outputs.softmax import Softmax
from nplm_jax.outputs.teacher import Teacher, check_teacher


@dataclasses.dataclass(frozen=True, kw_only=True)
class FullSoftmax(Softmax):
    """The softmax over all words, trained by its exact mean NLL."""

    block_size: CountOrZero = key(
        0,
        'number of examples whose |V| scores are in memory at once; 0: 256 on a CPU, 1024 on a TPU, 4096 on a GPU',
    )

    def check(self) -> None:
        """See `Component.check`. A layer with a loss of its own takes no teacher."""
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
