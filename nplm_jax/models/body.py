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
from nplm_jax.nn import Keys
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
    def features(self, params: Params, e_SxLxM: jax.Array, state: State, keys: Keys | None = None) -> BodyOutput:
        """Computes the features that the output matrices multiply.

        A body that can read a text line by line (`corpus.context=line`) takes one argument more, `starts_SxL`:
        `Batch.starts_SxL`. Its features depend on no token before the line: a window has the features of the first
        token of the line in their places (`windows`), and a state begins anew.

        Args:
            params: The parameters; C_VxM is not read.
            e_SxLxM: The features of the tokens of each stream, in reading order, L = `lookback` + T.
            state: The state of the streams before these tokens.
            keys: The random keys of a training update; None while scoring, in float32 without dropout.
        """


def reads_lines(body: Body) -> bool:
    """Returns whether a body can read a text line by line: whether its `features` takes `starts_SxL`."""
    return 'starts_SxL' in inspect.signature(body.features).parameters


def by_example(features: Features) -> Features:
    """Returns S x T x D features as those of B examples, stream by stream, B x D."""
    return {name: x_SxTxD.reshape(-1, x_SxTxD.shape[2]) for name, x_SxTxD in features.items()}


def windows(e_SxLxM: jax.Array, num_words: int, starts_SxL: jax.Array | None = None) -> jax.Array:
    """Returns the features of the last words of each position, S x T x N x M, in reading order.

    Args:
        e_SxLxM: The features of the tokens of each stream.
        num_words: N; T = L - N + 1.
        starts_SxL: `Batch.starts_SxL`. The features of the token that begins the line of a position stand in the places
            before it.
    """
    T = e_SxLxM.shape[1] - num_words + 1
    if starts_SxL is not None:
        first_SxL = jax.lax.cummax(jnp.where(starts_SxL, jnp.arange(e_SxLxM.shape[1])[None, :], 0), axis=1)
        places_TxN = jnp.arange(T)[:, None] + jnp.arange(num_words)[None, :]
        places_SxTxN = jnp.maximum(places_TxN[None], first_SxL[:, num_words - 1 :, None])
        return jax.vmap(lambda e_LxM, places_TxN: e_LxM[places_TxN])(e_SxLxM, places_SxTxN)
    if T == 1:  # in training
        return e_SxLxM[:, None]
    return jnp.stack([e_SxLxM[:, i : T + i] for i in range(num_words)], axis=2)
