"""A trained network as a language model.

Dims: V vocabulary, N context words, B contexts, lines or words of a block, T words of a stream or a line.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.data import dataset
from nplm_jax.data.corpora import Span
from nplm_jax.data.vocabulary import RARE_ID
from nplm_jax.models.body import Carry
from nplm_jax.models.language_model import LanguageModel, check_contexts
from nplm_jax.models.network import Network
from nplm_jax.outputs.output_layer import Features, Params

SCORING_BATCH = 256  # words scored at once: a V x B block of scores that stays in the processor's cache
LINES_PER_BATCH = 64  # lines scored in parallel
LENGTH_MULTIPLE = 16  # lengths are rounded up to it, so that lines of similar length share a compiled program


class DecodingState(NamedTuple):
    """What a network keeps of the words that it has read: the last N, what its body carries, and its features."""

    recent_BxN: jax.Array
    carry: Carry
    features: Features


class NeuralLanguageModel(LanguageModel):
    """A network and its parameters. Everything is evaluated exactly, without dropout, in float32."""

    def __init__(self, network: Network, params: Params) -> None:
        """Takes the parameters as they are; nothing is copied."""
        self.network = network
        self.params = params

    @property
    def n(self) -> int | None:
        """See `LanguageModel.n`: None for a body that carries a state."""
        return None if jax.tree.leaves(self.network.body.start(1)) else self.network.body.num_context + 1

    def score(self, tokens_T: jax.Array | np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.score`. A body that carries a state reads `warm_up` words before the span first."""
        start = max(0, span.start - self.network.body.warm_up)
        num_blocks = -(-(span.stop - start) // SCORING_BATCH)
        positions = np.minimum(start + np.arange(num_blocks * SCORING_BATCH), span.stop - 1).astype(np.int32)
        log_p = _score_stream(self.network, self.params, jnp.asarray(tokens_T), positions.reshape(num_blocks, -1))
        return np.asarray(log_p).reshape(-1)[span.start - start : span.stop - start]

    def score_lines(self, lines: Sequence[np.ndarray]) -> list[np.ndarray]:
        """See `LanguageModel.score_lines`. Lines of similar length are scored in parallel."""
        log_p = [np.zeros(0, np.float32)] * len(lines)
        order = sorted((i for i in range(len(lines)) if len(lines[i])), key=lambda i: len(lines[i]))
        for first in range(0, len(order), LINES_PER_BATCH):
            batch = order[first : first + LINES_PER_BATCH]
            longest = -(-len(lines[batch[-1]]) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
            lines_BxT = np.full((LINES_PER_BATCH, longest), RARE_ID, np.int32)
            for row_T, i in zip(lines_BxT, batch):
                row_T[: len(lines[i])] = lines[i]
            for row_T, i in zip(np.asarray(_score_lines(self.network, self.params, lines_BxT)), batch):
                log_p[i] = row_T[: len(lines[i])]
        return log_p

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """See `LanguageModel.next_word`."""
        return np.asarray(self.predict(self.begin(contexts_BxN)))

    def begin(self, contexts_BxN: np.ndarray) -> DecodingState:
        """See `LanguageModel.begin`. A rare-word symbol stands for all words before the context."""
        contexts_BxN, num_context = check_contexts(contexts_BxN), self.network.body.num_context
        if self.n is not None:
            contexts_BxN = contexts_BxN[:, contexts_BxN.shape[1] - min(contexts_BxN.shape[1], num_context) :]
            padding = num_context - contexts_BxN.shape[1]
            recent_BxN = np.pad(contexts_BxN, ((0, 0), (padding, 0)), constant_values=RARE_ID)
            return _read_window(self.network, self.params, recent_BxN)
        last = contexts_BxN.shape[1]
        padding = -(last + 1) % LENGTH_MULTIPLE
        words_BxT = np.pad(contexts_BxN, ((0, 0), (num_context, padding)), constant_values=RARE_ID)
        return _read_stream(self.network, self.params, words_BxT, last)

    def predict(self, state: DecodingState) -> jax.Array:
        """See `LanguageModel.predict`."""
        return _predict(self.network, self.params, state.features)

    def advance(self, state: DecodingState, ids_B: jax.Array | np.ndarray) -> DecodingState:
        """See `LanguageModel.advance`."""
        return _advance(self.network, self.params, state, jnp.asarray(ids_B))


def _exact(function: Callable[..., Any]) -> Any:
    """Compiles a function of a network, in float32 also where an accelerator would round to fewer bits."""
    return functools.partial(jax.jit, static_argnames='network')(jax.default_matmul_precision('float32')(function))


@_exact
def _score_stream(network: Network, params: Params, tokens_T: jax.Array, positions_SxB: jax.Array) -> jax.Array:
    """Returns log P of the words at these positions of one stream, S x B, nats."""

    def score_block(carry: Carry, positions_B: jax.Array) -> tuple[Carry, jax.Array]:
        contexts_BxN, targets_B = dataset.windows(tokens_T, positions_B, network.body.num_context)
        features, carry = network.features(params, contexts_BxN, carry)
        return carry, -network.output.nll(params, features, targets_B)

    return jax.lax.scan(score_block, network.body.start(1), positions_SxB)[1]


@_exact
def _score_lines(network: Network, params: Params, lines_BxT: jax.Array) -> jax.Array:
    """Returns log P of each word after the words before it in its line, B x T, nats."""
    (B, T), N = lines_BxT.shape, network.body.num_context
    size = max(1, SCORING_BATCH // B)
    padded = jnp.pad(lines_BxT, ((0, 0), (N, -T % size)), constant_values=RARE_ID)
    places_TxN = jnp.arange(padded.shape[1] - N)[:, None] + jnp.arange(N)[None, :]
    contexts = padded[:, places_TxN].reshape(B, -1, size, N).swapaxes(0, 1)
    targets = padded[:, N:].reshape(B, -1, size).swapaxes(0, 1)

    def score_block(carry: Carry, block: tuple[jax.Array, jax.Array]) -> tuple[Carry, jax.Array]:
        contexts_BxSxN, targets_BxS = block
        features, carry = network.features(params, contexts_BxSxN.reshape(B * size, N), carry)
        return carry, -network.output.nll(params, features, targets_BxS.reshape(-1)).reshape(B, size)

    log_p = jax.lax.scan(score_block, network.body.start(B), (contexts, targets))[1]
    return log_p.swapaxes(0, 1).reshape(B, -1)[:, :T]


@_exact
def _read_window(network: Network, params: Params, recent_BxN: jax.Array) -> DecodingState:
    features, carry = network.features(params, recent_BxN)
    return DecodingState(recent_BxN, carry, features)


@_exact
def _read_stream(network: Network, params: Params, words_BxT: jax.Array, last: int) -> DecodingState:
    """Returns the state after the words up to column `last` of those that follow the first N."""
    B, N = len(words_BxT), network.body.num_context

    def read(carry: Carry, recent_BxN: jax.Array) -> tuple[Carry, DecodingState]:
        features, carry = network.features(params, recent_BxN, carry)
        return carry, DecodingState(recent_BxN, carry, features)

    num_windows = words_BxT.shape[1] - N + 1
    windows = words_BxT[:, jnp.arange(num_windows)[:, None] + jnp.arange(N)[None, :]].swapaxes(0, 1)
    states = jax.lax.scan(read, network.body.start(B), windows)[1]
    return jax.tree.map(lambda x: x[last], states)


@_exact
def _predict(network: Network, params: Params, features: Features) -> jax.Array:
    return network.output.log_probabilities(params, features)


@_exact
def _advance(network: Network, params: Params, state: DecodingState, ids_B: jax.Array) -> DecodingState:
    recent_BxN = jnp.concatenate([state.recent_BxN[:, 1:], ids_B[:, None]], axis=1)
    features, carry = network.features(params, recent_BxN, state.carry)
    return DecodingState(recent_BxN, carry, features)
