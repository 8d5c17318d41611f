"""Interface of network bodies: from embedded tokens to the features that the output layer multiplies.

A body reads S streams of L = `lookback` + T tokens each, and returns the features after the last T tokens of each
stream, from which the next tokens are predicted. Examples are numbered stream by stream, so that B = S * T. What a body
knows of older tokens is in the first `lookback` tokens, which the caller repeats, or in a state, which it hands on:

| | a window | a body with a state |
|---|---|---|
| P(w) depends on | the last `reach` tokens, N of them | all tokens, or the last `reach` |
| `lookback` | N - 1 | 0 |
| training | B shuffled examples: S = B, T = 1 | streams of the corpus: S = B / `bptt_length`, T = `bptt_length` |
| scoring | one stream, or as many as there are lines, of any T | the same |
| before the first token of a text | N rare-word symbols | `start`, then one rare-word symbol |

Boundaries of paragraphs and texts are tokens like any other: a state is carried over them, and a window spans them,
unless `corpus.context` is `line` (see `Network.line_end`).

Dims: V vocabulary, M features per word (m), D width of an array of features, N context words.
"""

import abc
import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from nplm_jax.config.component import Component
from nplm_jax.data.batches import Layout
from nplm_jax.nn import AxisName, Key
from nplm_jax.outputs.output_layer import Features, Params, Tables
from nplm_jax.outputs.softmax import LINEAR, Scorer
from nplm_jax.utils.errors import BadInput

State = Any  # a pytree of arrays with one row per stream; None for a body without state


class BodyOutput(NamedTuple):
    """What a body computes.

    Attributes:
        features: The features after the last T tokens of each stream, S x T x D, by the name of the output matrix that
            multiplies them.
        state: The state of the streams after these tokens.
        penalty: What is added to the mean NLL in training, nats per word.
    """

    features: Features
    state: State = None
    penalty: jax.Array | float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Body(Component, abc.ABC):
    """Maps embedded tokens to features, as pure functions of the parameters.

    The defaults here are those of a window.

    Attributes:
        tables: Its tables besides C, the matrices of `widths` and b. Its `scorer` gets the same rows of all that have
            one row per output word.
    """

    tables: ClassVar[Tables] = Tables()

    @property
    @abc.abstractmethod
    def reach(self) -> int | None:
        """Tokens before a target on which its prediction depends; None for all."""

    @property
    def lookback(self) -> int:
        """The tokens before the last T that `features` takes in every call: N - 1 of a window."""
        if self.reach is None:
            raise BadInput('model.family', 'reach must be a number, unless it is a StreamBody', value=self.name)
        return self.reach - 1

    @property
    def layout(self) -> Layout:
        """How training lays out the examples of an update."""
        return Layout(self.lookback)

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
    ) -> BodyOutput:
        """Computes the features that the output matrices multiply.

        A body over streams that can begin anew within a stream takes `starts_SxL` too: whether a token is the first
        of a line, before which the state is that of `start`. It can be trained line by line (`corpus.context=line`).

        Args:
            params: The parameters; C_VxM is not read.
            e_SxLxM: The features of the tokens of each stream, in reading order, L = `lookback` + T.
            state: The state of the streams before these tokens.
            key: A random key for the dropout of a training update; None while scoring, in float32 without dropout.
            axis: The named axis over which the streams are divided, if they are.
        """


def reads_lines(body: Body) -> bool:
    """Returns whether a body can be trained line by line: a window, or one whose `features` takes `starts_SxL`."""
    return not body.layout.over_streams or 'starts_SxL' in inspect.signature(body.features).parameters


def by_example(features: Features) -> Features:
    """Returns S x T x D features as those of B examples, stream by stream, B x D."""
    return {name: x_SxTxD.reshape(-1, x_SxTxD.shape[2]) for name, x_SxTxD in features.items()}


def windows(e_SxLxM: jax.Array, num_words: int) -> jax.Array:
    """Returns the features of the last words of each position, S x T x N x M, in reading order.

    Args:
        e_SxLxM: The features of the tokens of each stream.
        num_words: N; T = L - N + 1.
    """
    T = e_SxLxM.shape[1] - num_words + 1
    if T == 1:  # in training
        return e_SxLxM[:, None]
    return jnp.stack([e_SxLxM[:, i : T + i] for i in range(num_words)], axis=2)
