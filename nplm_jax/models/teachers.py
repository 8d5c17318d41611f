"""The teachers of a network in training: what each of them has read of the text, beside the student.

Dims: S streams, L tokens of each that are read, T of them after which there are predictions, B = S * T examples.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax

from nplm_jax.data.batches import Batch
from nplm_jax.models.body import Body, State, by_example
from nplm_jax.outputs.output_layer import Params
from nplm_jax.outputs.teacher import Teacher

if TYPE_CHECKING:
    from nplm_jax.models.network import Network

_CONTEXT = 32  # words that a teacher of unlimited reach reads for each shuffled example


@dataclasses.dataclass(frozen=True)
class Teachers:
    """The static part of the teachers. They read without dropout, in float32.

    Attributes:
        networks: Their networks: each a `network.Network`, whose module imports this one.
        over_streams: Whether the student trains on streams. Then a teacher with a state carries it along the same
            streams. Otherwise the examples are shuffled, and a teacher reads the last words of each from its `start`:
            as many as it reaches, or _CONTEXT if it reaches all.
    """

    networks: tuple[Any, ...]
    over_streams: bool

    @property
    def lookback(self) -> int:
        """The tokens before the last T that the teachers need."""
        return max(map(self._lookback, (network.body for network in self.networks)))

    def _lookback(self, body: Body) -> int:
        return body.lookback if self.over_streams else (body.reach or _CONTEXT) - 1

    def start(self, num_streams: int) -> tuple[State, ...]:
        """Returns the state of each teacher before the first tokens of the streams."""
        if not self.over_streams:  # each example is read from its own start
            return (None,) * len(self.networks)
        return tuple(network.body.start(num_streams) for network in self.networks)

    def read(
        self, params: Sequence[Params], ids_SxL: jax.Array, num_targets: int, states: Sequence[State]
    ) -> tuple[tuple[Teacher, ...], tuple[State, ...]]:
        """Reads a batch with each teacher.

        Args:
            params: The parameters of each teacher.
            ids_SxL: Token ids of each stream, int32, with `lookback` or more tokens before the last T.
            num_targets: T.
            states: The state of each teacher before these tokens.

        Returns:
            The teachers with their features of each example, and their states after these tokens.
        """
        teachers, after = [], []
        for network, its_params, state in zip(self.networks, params, states, strict=True):
            words_SxL = ids_SxL[:, -(self._lookback(network.body) + num_targets) :]
            if not self.over_streams:
                zero = 0 * ids_SxL[0, 0]  # makes the state one of this device's streams, where the mesh divides them
                state = jax.tree.map(lambda x, zero=zero: x + zero.astype(x.dtype), network.body.start(len(ids_SxL)))
            output = network.features(its_params, words_SxL, state)
            features = by_example({name: x[:, -num_targets:] for name, x in output.features.items()})
            teachers.append(Teacher(network.output, network.tables.words, its_params, features))
            after.append(output.state if self.over_streams else None)
        return tuple(teachers), tuple(after)


def training_start(network: 'Network', num_streams: int) -> State:
    """Returns the state of streams in training: that of `Body.start`, with teachers the pair of it and theirs."""
    start = network.body.start(num_streams)
    return start if network.teachers is None else (start, network.teachers.start(num_streams))


def read_with_teachers(
    network: 'Network', batch: Batch, state: State, params: Sequence[Params]
) -> tuple[Batch, State, tuple[Teacher, ...], tuple[State, ...]]:
    """Reads a training batch with the teachers of a network, if it has any.

    Args:
        network: The network.
        batch: The batch, with `Network.layout.lookback` tokens before the targets.
        state: What `training_start` returned, or the state after the batch before; None for the former.
        params: The teachers' parameters.

    Returns:
        What the body reads of the batch, and its state; the teachers, and their states after the batch.
    """
    if network.teachers is None:
        return batch, state, (), ()
    (S, T), ids_SxL = batch.targets_SxT.shape, batch.ids_SxL
    own, states = training_start(network, S) if state is None else state
    teachers, states = network.teachers.read(params, ids_SxL, T, states)
    return batch._replace(ids_SxL=own_ids(network, batch)), own, teachers, states


def own_ids(network: 'Network', batch: Batch) -> jax.Array:
    """Returns the tokens of a training batch that the body reads, without those for the teachers alone."""
    if network.teachers is None:
        return batch.ids_SxL
    return batch.ids_SxL[:, -(network.body.layout.lookback + batch.targets_SxT.shape[1]) :]
