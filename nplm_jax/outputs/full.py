"""The full softmax, trained with the exact loss.

Dims: V vocabulary, B batch, D width of a feature array.
"""

import dataclasses

from nplm_jax.config.component import CountOrZero, key
from nplm_jax.data.batches import Batch
from nplm_jax.outputs.blockwise import blockwise_cross_entropy, blockwise_distillation
from nplm_jax.outputs.output_layer import BIAS, Features, Losses, View
from nplm_jax.outputs.soft_targets import SoftTargets, check_teacher
from nplm_jax.outputs.softmax import Softmax


@dataclasses.dataclass(frozen=True, kw_only=True)
class FullSoftmax(Softmax):
    """The softmax over all words, trained with the exact mean NLL."""

    block_size: CountOrZero = key(
        0,
        'number of examples whose |V| scores are in memory at once; 0 means 512 on CPUs (256 in bfloat16), 1024 on '
        'TPUs and 4096 on GPUs',
    )

    def check(self) -> None:
        """See `Component.check`. Also rejects teachers for subclasses with their own loss."""
        check_teacher(self.teacher, self.teacher_weight, type(self).loss is not FullSoftmax.loss)

    def loss(
        self,
        view: View,
        features: Features,
        batch: Batch,
        axis: str | None = None,
        teachers: SoftTargets | None = None,
    ) -> Losses:
        """See `OutputLayer.loss`. The scores are computed in blocks, never as a V x B array; see `outputs.blockwise`.

        With teachers, the loss is the cross-entropy with a mixture of the targets and the teachers' distributions. In
        this case, `axis` must be None.
        """
        terms = tuple((view.shared[name], inputs_BxD) for name, inputs_BxD in features.items())
        args, blocks = (terms, view.shared[BIAS], batch.targets_B), (self.precision, self.block_size)
        if teachers is not None:
            return blockwise_distillation(*args, teachers, self.teacher_weight, *blocks)
        nll = blockwise_cross_entropy(*args, *blocks, axis)
        return nll, nll
