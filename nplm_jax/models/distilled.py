"""Implements distillation: a network is trained on both the targets and the distributions of teacher networks.

The soft targets q are the mean of the teachers' distributions. The output layer of the trained network (the student)
computes the loss; see `outputs.soft_targets`.

Dims: V vocabulary, S streams (or the words that all examples share), T targets per stream, B = S * T examples.

References:
    Hinton, Vinyals and Dean, Distilling the knowledge in a neural network, 2015.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from nplm_jax.data.batches import Batch, Layout
from nplm_jax.distributed.mapping import NO_AXES, MeshAxes
from nplm_jax.models.body import Body, State, by_example
from nplm_jax.models.network import Network
from nplm_jax.nn import Keys, Precision
from nplm_jax.outputs import softmax
from nplm_jax.outputs.output_layer import Features, OutputLayer, Params, Rows, View, view_rows

_CONTEXT = 32  # number of context words that a teacher with unlimited reach reads for each shuffled example


@dataclasses.dataclass(frozen=True)
class Distilled(Network):
    """A network with teachers, which is used only in training.

    The teachers read the same batches as the network, in float32 and without dropout. Their parameters are passed as
    `Batch.teachers`.

    - If the network trains on streams, stateful teachers carry their states along the same streams.
    - If the examples are shuffled, each teacher starts from its initial state and reads the context of each example.
      The context consists of `reach` words, or of _CONTEXT words if the reach of the teacher is unlimited.

    Attributes:
        teachers: The teacher networks, over the same vocabulary as the network.
    """

    teachers: tuple[Network, ...] = ()

    @property
    def layout(self) -> Layout:
        """See `Network.layout`. The lookback is long enough for the contexts of the teachers."""
        own = super().layout
        return own._replace(lookback=max(own.lookback, *(self._lookback(teacher.body) for teacher in self.teachers)))

    def _lookback(self, body: Body) -> int:
        return body.lookback if self.body.layout.over_streams else (body.reach or _CONTEXT) - 1

    def start(self, num_streams: int) -> State:
        """See `Network.start`. Returns a pair: the network's state and the tuple of the teachers' states."""
        starts = (t.start(num_streams) if self.body.layout.over_streams else None for t in self.teachers)
        return super().start(num_streams), tuple(starts)

    def loss(
        self,
        view: View,
        batch: Batch,
        state: State = None,
        keys: Keys | None = None,
        axes: MeshAxes = NO_AXES,
        **options: Any,
    ) -> tuple[jax.Array, tuple[jax.Array, State]]:
        """See `Network.loss`.

        The loss is the cross-entropy with a mixture of the targets and the teachers' distributions.
        """
        own, states = self.start(len(batch.ids_SxL)) if state is None else state
        teachers, states = self.read(batch, states)
        loss, (nll, own) = super().loss(view, batch, own, keys, axes, teachers=teachers, **options)
        return loss, (nll, (own, states))

    def read(self, batch: Batch, states: Sequence[State]) -> tuple['Teachers', tuple[State, ...]]:
        """Runs each teacher on a batch.

        Args:
            batch: The batch, with `layout.lookback` tokens before the targets, and the teachers' parameters.
            states: The state of each teacher before the batch.

        Returns:
            The distribution of the teachers for each example of the batch, and the teachers' states after the batch.
        """
        features, after = [], []
        for network, params, state in zip(self.teachers, batch.teachers, states, strict=True):
            words = batch.recent(self._lookback(network.body))
            if not self.body.layout.over_streams:
                zero = 0 * batch.ids_SxL[0, 0]  # marks the state as varying over the devices of a mesh
                state = jax.tree.map(lambda x, z=zero: x + z.astype(x.dtype), network.start(len(batch.ids_SxL)))
            output = network.features(params, words.ids_SxL, state, starts_SxL=words.starts_SxL)
            num_targets = batch.targets_SxT.shape[1]
            features.append(by_example({name: x[:, -num_targets:] for name, x in output.features.items()}))
            after.append(output.state if self.body.layout.over_streams else None)
        layers, tables = tuple(t.output for t in self.teachers), tuple(t.tables.words for t in self.teachers)
        return Teachers(layers, tables, batch.teachers, tuple(features)), tuple(after)


@flax.struct.dataclass
class Teachers:
    """The mean of the teachers' distributions for each example of a batch. Implements `soft_targets.SoftTargets`.

    Attributes:
        layers: The output layer of each teacher.
        tables: For each teacher, the names of the parameters with one row per output word.
        params: The parameters of each teacher. They are constants in the student's gradient.
        features: The features of the examples, as computed by each teacher.
    """

    layers: tuple[OutputLayer, ...] = flax.struct.field(pytree_node=False)
    tables: tuple[tuple[str, ...], ...] = flax.struct.field(pytree_node=False)
    params: tuple[Params, ...]
    features: tuple[Features, ...]

    def probabilities(self, precision: Precision) -> jax.Array:
        """See `SoftTargets.probabilities`."""
        each = zip(self.layers, self.params, self.features)
        return _mean([softmax.probabilities(*teacher, precision) for teacher in each])

    def of_candidates(
        self, targets_B: jax.Array, samples_S: jax.Array, log_inclusion_prob_S: jax.Array, precision: Precision
    ) -> tuple[jax.Array, jax.Array]:
        """See `SoftTargets.of_candidates`.

        The distribution of a teacher with scores y is estimated by exp(y) for the target and by exp(y) / P(included)
        for each of the other samples, normalized to sum to one. The estimate is exact if all words are sampled.
        """
        is_target_SxB = samples_S[:, None] == targets_B[None, :]

        def estimate(scores: tuple[jax.Array, jax.Array]) -> jax.Array:
            target_B, y_SxB = scores
            rest_SxB = jnp.where(is_target_SxB, -jnp.inf, y_SxB - log_inclusion_prob_S[:, None])
            return jax.nn.softmax(jnp.concatenate([target_B[None], rest_SxB]), axis=0)

        each = zip(self.layers, self.tables, self.params, self.features)
        scores = (word_scores(*teacher, targets_B, samples_S, precision) for teacher in each)
        q_TxB = jax.lax.stop_gradient(_mean([estimate(both) for both in scores]))
        return q_TxB[0], q_TxB[1:]


def word_scores(
    layer: OutputLayer,
    tables: Sequence[str],
    params: Params,
    features: Features,
    targets_B: jax.Array,
    samples_S: jax.Array,
    precision: Precision,
) -> tuple[jax.Array, jax.Array]:
    """Returns the float32 log-probabilities of the selected words in nats, up to a constant for each example.

    For a softmax layer, the function reads only the rows of the selected words.

    Args:
        layer: The output layer of a teacher.
        tables: The names of the layer's parameters with one row per output word.
        params: The parameters of the teacher.
        features: The features that the teacher computed for the examples.
        targets_B: One word per example, int32.
        samples_S: Words that all examples share, int32.
        precision: See `outputs.softmax.probabilities`.

    Returns:
        The values for the targets, B, and for the samples, S x B.
    """
    if (scorer := softmax.scorer_of(layer)) is None:
        log_p_BxV = layer.log_probabilities(params, features)
        return jnp.take_along_axis(log_p_BxV, targets_B[:, None], axis=1)[:, 0], log_p_BxV[:, samples_S].T
    view = view_rows(params, tables, Rows(targets_B[:, None], samples_S))
    target_B = scorer.gathered_scores(view.shared, view.examples, features)[:, 0]
    return target_B, scorer.scores(view.shared, features, precision)


def _mean(arrays: Sequence[jax.Array]) -> jax.Array:
    """Returns the elementwise mean of the arrays without stacking them."""
    return functools.reduce(jnp.add, arrays) / len(arrays)
