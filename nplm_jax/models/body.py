"""Interface of network bodies: from embedded tokens to the features that the output layer multiplies.

A body reads S streams of L tokens each, and returns the features after the last T tokens of each stream, from which
the next tokens are predicted. Examples are numbered stream by stream, so that B = S * T. There are two kinds:

| | a window | a body with a state |
|---|---|---|
| P(w) depends on | the last `reach` tokens, N of them | all tokens, or the last `reach` |
| training | S = B streams in random order, L = N, T = 1 | S = B / `bptt_length` streams that go on, L = T |
| scoring | the N tokens before each position are a stream, L = N | one stream, or as many as there are lines, L = T |
| before the first token of a text | N rare-word symbols | `start`, then one rare-word symbol |

Boundaries of paragraphs and texts are tokens like any other: a state is carried over them, and a window spans them.
The masks of dropout are B x D, one row for each token; S x D with `model.variational`, one row for each stream; and
B x 1 for the words that `model.word_dropout` leaves out. No mask is on the path from state to state.

Dims: V vocabulary, M features per word (m), D width of an array of features, N context words.
"""

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.data import dataset
from nplm_jax.data.corpora import Span
from nplm_jax.outputs.output_layer import Features, Params
from nplm_jax.outputs.softmax import LINEAR, Scorer
from nplm_jax.parts import Part
from nplm_jax.utils.checked_fields import key
from nplm_jax.utils.nn import AxisName, Key

State = Any  # a pytree of arrays with one row per stream; None for a body without state
BURN_IN = 512  # tokens before a scored span that fill a state of unlimited reach


@dataclasses.dataclass(frozen=True, kw_only=True)
class Body(Part, abc.ABC):
    """Maps embedded tokens to features, as pure functions of the parameters.

    The defaults here are those of a window.

    Attributes:
        unigram_bias: Whether b begins with the log-frequencies of the training words.
        has_state: Whether a stream is read part by part, each part from the state after the previous one.
        bptt_length: Tokens per stream that an update predicts; None for one token per stream.
        output_tables: Names of its parameters with one row per output word, besides the matrices of `widths`: its
            `scorer` gets the same rows of all of these. Every device has all other parameters in full.
        tables: Names of its parameters with one row for something else, such as a position: tables for the optimizer,
            as C and those of `output_tables` are.
        rows_are_outputs: The names of the matrices that are (out, in), for optimizers such as Muon, to which the shape
            of a matrix matters. Other matrices are (in, out).
    """

    unigram_bias: bool = key(
        True, 'initialise b with the log-frequencies of the training words; the paper does not say'
    )
    has_state: ClassVar[bool] = False
    output_tables: ClassVar[tuple[str, ...]] = ()
    tables: ClassVar[tuple[str, ...]] = ()
    rows_are_outputs: ClassVar[frozenset[str]] = frozenset()
    bptt_length: ClassVar[int | None] = None

    @property
    @abc.abstractmethod
    def reach(self) -> int | None:
        """Tokens before a target on which its prediction depends; None for all."""

    @property
    def num_context(self) -> int:
        """N: the tokens that `features` takes for one prediction while scoring."""
        if self.has_state:
            return 1
        assert self.reach is not None
        return self.reach

    @property
    def training_context(self) -> int:
        """The tokens before a target that `features` takes for one prediction in training."""
        return self.num_context if self.bptt_length is None else 1

    @property
    def burn_in(self) -> int:
        """Number of tokens read before a scored span to fill the state."""
        if not self.has_state:
            return 0
        return BURN_IN if self.reach is None else self.reach

    @property
    @abc.abstractmethod
    def widths(self) -> Mapping[str, int]:
        """Width of each output matrix by name: the last dimension of the features it multiplies.

        C_VxM may be one of them: then the words' features are also their output weights (tied).
        """

    @abc.abstractmethod
    def init(self, key: jax.Array, vocabulary_size: int) -> Params:
        """Returns the body's parameters, C_VxM among them."""

    @property
    def scorer(self) -> Scorer:
        """Computes the words' scores from these features and the output matrices."""
        return LINEAR

    def output_keys(self, key: jax.Array) -> dict[str, jax.Array]:
        """Returns a random key for each output matrix, derived from the key that `init` takes."""
        keys = jax.random.split(jax.random.fold_in(key, 5), len(self.widths))
        return dict(zip(self.widths, keys))

    def start(self, num_streams: int) -> State:
        """Returns the state of streams before their first token."""
        return None

    @abc.abstractmethod
    def features(
        self, params: Params, e_SxLxM: jax.Array, state: State, key: Key = None, axis: AxisName = None
    ) -> tuple[Features, State]:
        """Computes the features that the output matrices multiply.

        Args:
            params: The parameters; C_VxM is not read.
            e_SxLxM: The features of the tokens of each stream, in reading order.
            state: The state of the streams before these tokens.
            key: A random key for dropout; None switches it off.
            axis: The named axis over which the streams are divided, if they are.

        Returns:
            The features after the last T tokens of each stream, S x T x D, by the name of their matrix; and the state
            after these tokens.
        """

    def penalty(self, features: Features) -> jax.Array | float:
        """Returns a penalty on the features of a training batch, B x D, that is added to the mean NLL."""
        return 0.0

    def num_streams(self, batch_size: int) -> int:
        """Returns S, the number of streams of a training batch."""
        return batch_size // (self.bptt_length or 1)

    def epoch_positions(self, seed: int, epoch: int, train: Span, batch_size: int) -> jax.Array:
        """Returns the positions in the corpus in the order in which an epoch trains on them, int32."""
        if self.bptt_length is None:
            return dataset.epoch_order(seed, epoch, train)
        size = dataset.stream_epoch_size(train, self.num_streams(batch_size), self.bptt_length)
        return jnp.asarray(self.positions_at(seed, epoch, train, batch_size, np.arange(size)), jnp.int32)

    def positions_at(self, seed: int, epoch: int, train: Span, batch_size: int, indices: np.ndarray) -> np.ndarray:
        """Returns some elements of the order in which an epoch trains on a corpus that is too long for one array."""
        if self.bptt_length is None:
            return dataset.shuffled_positions(seed, epoch, train, indices)
        return dataset.stream_positions(seed, epoch, train, self.num_streams(batch_size), self.bptt_length, indices)


def by_example(features: Features) -> Features:
    """Returns S x T x D features as those of B examples, stream by stream, B x D."""
    return {name: x_SxTxD.reshape(-1, x_SxTxD.shape[2]) for name, x_SxTxD in features.items()}
