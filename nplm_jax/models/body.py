"""The interface of network bodies, which map embedded tokens to features for the output layer.

A body reads S streams of L = `lookback` + T tokens each. For each of the last T tokens of a stream, it returns the
features from which the output layer predicts the next token. Examples are numbered stream by stream: B = S * T. The
context before these T tokens comes either from the first `lookback` tokens, which the caller passes again in each call,
or from a state, which the caller carries from call to call:

| | window | stateful body |
|---|---|---|
| P(w) depends on | the last N = `reach` tokens | all tokens, or the last `reach` tokens |
| `lookback` | N - 1 | 0 |
| training | B shuffled examples: S = B, T = 1 | parallel streams: S = B / `bptt_length`, T = `bptt_length` |
| scoring | one stream, or one stream per line, any T | the same |
| before the first token of a text | N rare-word symbols | `start`, then one rare-word symbol |

Paragraph and text boundaries are ordinary tokens. States and windows extend across them, unless `corpus.context` is
`line` (see `Network.line_end`).

Dims: V vocabulary, M features per word (m), D width of a feature array, N context words.
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

State = Any  # a pytree of arrays with one row per stream; None if the body is stateless


class BodyOutput(NamedTuple):
    """The output of a body.

    Attributes:
        features: The features after each of the last T tokens of each stream, S x T x D. The keys are the names of the
            output matrices that the features are multiplied by.
        state: The state of each stream after the last token, or None if the body is stateless.
        penalty: A regularization term that training adds to the mean NLL, nats per word.
    """

    features: Features
    state: State = None
    penalty: jax.Array | float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Body(Component, abc.ABC):
    """The part of a network that maps embedded tokens to features. All methods are pure functions of the parameters.

    Unless a subclass overrides them, the methods describe a body that reads a window of tokens and has no state.

    Attributes:
        tables: The tables of the body, without C, b and the output matrices in `widths`. If a table has one row per
            output word, `scorer` receives the rows of the same words as of the output matrices.
    """

    tables: ClassVar[Tables] = Tables()

    @property
    @abc.abstractmethod
    def reach(self) -> int | None:
        """The number of preceding tokens on which a prediction depends. None if a prediction depends on all of them."""

    @property
    def lookback(self) -> int:
        """The number of context tokens that `features` takes before the last T tokens: N - 1 for a window."""
        if self.reach is None:
            allowed = 'must define a finite `reach`; a body with unlimited reach must be a subclass of StreamBody'
            raise BadInput('model.family', allowed, value=self.name)
        return self.reach - 1

    @property
    def burn_in(self) -> int:
        """The number of words that fill the state before a scored span: 512 if `reach` is None."""
        return 512 if self.reach is None else self.reach - self.lookback - 1

    @property
    def layout(self) -> Layout:
        """The arrangement of training examples into streams."""
        return Layout(self.lookback)

    @property
    @abc.abstractmethod
    def widths(self) -> Mapping[str, int]:
        """The width of each output matrix, by name. It is the last dimension of the features for this matrix.

        If C_VxM is among the names, the word features also serve as output weights (tied embeddings).
        """

    @abc.abstractmethod
    def init(self, key: jax.Array, vocabulary_size: int) -> Params:
        """Returns initial parameters of the body, including C_VxM."""

    @property
    def scorer(self) -> Scorer:
        """The function that computes word scores from the features and the output matrices."""
        return LINEAR

    def output_keys(self, key: jax.Array) -> dict[str, jax.Array]:
        """Derives a random key for each output matrix from the key that is passed to `init`."""
        return dict(zip(self.widths, jax.random.split(jax.random.fold_in(key, 5), len(self.widths))))

    def start(self, num_streams: int) -> State:
        """Returns the initial state of `num_streams` streams, or None if the body is stateless."""
        return None

    @abc.abstractmethod
    def features(self, params: Params, e_SxLxM: jax.Array, state: State, keys: Keys | None = None) -> BodyOutput:
        """Computes the features that are multiplied by the output matrices.

        A body that supports `corpus.context=line` also takes the argument `starts_SxL` (see `Batch.starts_SxL`), and
        its features do not depend on tokens before the current line. A window replaces these tokens with the first
        token of the line; see `windows`. A stateful body resets its state at the start of each line.

        Args:
            params: The parameters. C_VxM is not used, because the tokens are already embedded.
            e_SxLxM: The embedded tokens of each stream in reading order, L = `lookback` + T.
            state: The state of each stream before these tokens.
            keys: The random keys of a training update. None selects scoring, which uses float32 and no dropout.
        """


def reads_lines(body: Body) -> bool:
    """Returns whether a body supports `corpus.context=line`, that is, whether `features` takes `starts_SxL`."""
    return 'starts_SxL' in inspect.signature(body.features).parameters


def by_example(features: Features) -> Features:
    """Reshapes features from S x T x D to B x D. The B = S * T examples are numbered stream by stream."""
    return {name: x_SxTxD.reshape(-1, x_SxTxD.shape[2]) for name, x_SxTxD in features.items()}


def windows(e_SxLxM: jax.Array, num_words: int, starts_SxL: jax.Array | None = None) -> jax.Array:
    """Returns the window of the last N words at each position, S x T x N x M, in reading order.

    Args:
        e_SxLxM: The embedded tokens of each stream in reading order.
        num_words: N. The number of windows per stream is T = L - N + 1.
        starts_SxL: Whether each token begins a line; see `Batch.starts_SxL`. If given, the tokens of a window that
            precede the current line are replaced by the first token of the line.
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
