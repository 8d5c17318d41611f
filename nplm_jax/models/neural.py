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
from nplm_jax.models.ngram.counts import with_history
from nplm_jax.outputs.output_layer import Features, Params

SCORING_BATCH = 256  # words scored at once: a V x B block of scores that stays in the processor's cache
LINES_PER_BATCH = 64  # lines scored in parallel; SCORING_BATCH / LINES_PER_BATCH divides LENGTH_MULTIPLE
LENGTH_MULTIPLE = 16  # lengths are rounded up to it, so that lines of similar length share a compiled program


class DecodingState(NamedTuple):
    """Decoding state of a network: the last N words, the carry of its body, and its features."""

    recent_BxN: jax.Array
    carry: Carry
    features: Features


class NeuralLanguageModel(LanguageModel):
    """A network and its parameters. Everything is evaluated exactly, without dropout, in float32."""

    def __init__(self, network: Network, params: Params) -> None:
        """Takes a network and its parameters, without a copy."""
        self.network = network
        self.params = params
        self.n = network.body.n

    def score(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.score`. A body with a carry reads `burn_in` words before the span first."""
        start, N = max(0, span.start - self.network.body.burn_in), self.network.body.num_context
        words_L = with_history(tokens_T, Span(start, span.stop), N).astype(np.int32)
        positions_SxB = dataset.consecutive_positions(Span(N, len(words_L)), SCORING_BATCH)
        log_p = _score_stream(self.network, self.params, words_L, positions_SxB)
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
            for row_T, i in zip(self._score_batch(lines_BxT), batch):
                log_p[i] = row_T[: len(lines[i])]
        return log_p

    def _score_batch(self, lines_BxT: np.ndarray) -> np.ndarray:
        """Returns log P of each word after the words before it in its line, B x T, nats."""
        (B, T), N, size = lines_BxT.shape, self.network.body.num_context, SCORING_BATCH // LINES_PER_BATCH
        stream_L = np.pad(lines_BxT, ((0, 0), (N, 0)), constant_values=RARE_ID).reshape(-1)
        positions_BxT = (N + T) * np.arange(B, dtype=np.int32)[:, None] + np.arange(N, N + T, dtype=np.int32)[None, :]
        positions_SxB = positions_BxT.reshape(B, -1, size).swapaxes(0, 1).reshape(T // size, -1)
        log_p = _score_stream(self.network, self.params, stream_L, positions_SxB, num_streams=B)
        return np.asarray(log_p).reshape(-1, B, size).swapaxes(0, 1).reshape(B, T)

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """See `LanguageModel.next_word`."""
        return np.asarray(self.predict(self.begin(contexts_BxN)))

    def begin(self, contexts_BxN: np.ndarray) -> DecodingState:
        """See `LanguageModel.begin`. A rare-word symbol precedes the context of a body with a carry."""
        contexts_BxN, N = check_contexts(contexts_BxN), self.network.body.num_context
        last_window = contexts_BxN.shape[1]
        padding = N, -(last_window + 1) % LENGTH_MULTIPLE
        if self.n is not None:
            contexts_BxN, last_window = contexts_BxN[:, max(0, last_window - N) :], 0
            padding = N - contexts_BxN.shape[1], 0
        words_BxT = np.pad(contexts_BxN, ((0, 0), padding), constant_values=RARE_ID)
        return _read_stream(self.network, self.params, words_BxT, last_window)

    def predict(self, state: DecodingState) -> jax.Array:
        """See `LanguageModel.predict`."""
        return _predict(self.network, self.params, state.features)

    def advance(self, state: DecodingState, ids_B: jax.Array | np.ndarray) -> DecodingState:
        """See `LanguageModel.advance`."""
        return _advance(self.network, self.params, state, jnp.asarray(ids_B))


def jit_float32(function: Callable[..., Any], static_argnames: Sequence[str] = ('network',)) -> Any:
    """Compiles a function of a network with full float32 products (accelerators default to fewer bits)."""
    return jax.jit(jax.default_matmul_precision('float32')(function), static_argnames=static_argnames)


@functools.partial(jit_float32, static_argnames=('network', 'num_streams'))
def _score_stream(
    network: Network, params: Params, tokens_T: jax.Array, positions_SxB: jax.Array, num_streams: int = 1
) -> jax.Array:
    """Returns log P of the words at these positions, S x B, nats; B / num_streams consecutive words of each stream."""

    def score_block(carry: Carry, positions_B: jax.Array) -> tuple[Carry, jax.Array]:
        contexts_BxN, targets_B = dataset.windows(tokens_T, positions_B, network.body.num_context)
        features, carry = network.features(params, contexts_BxN, carry)
        return carry, -network.output.nll(params, features, targets_B)

    return jax.lax.scan(score_block, network.body.start(num_streams), positions_SxB)[1]


@jit_float32
def _read_stream(network: Network, params: Params, words_BxT: jax.Array, last_window: int) -> DecodingState:
    """Returns the decoding state after reading `words_BxT` up to window `last_window` (windows of N words)."""
    B, N = len(words_BxT), network.body.num_context

    def read(carry: Carry, recent_BxN: jax.Array) -> tuple[Carry, DecodingState]:
        features, carry = network.features(params, recent_BxN, carry)
        return carry, DecodingState(recent_BxN, carry, features)

    num_windows = words_BxT.shape[1] - N + 1
    windows = words_BxT[:, jnp.arange(num_windows)[:, None] + jnp.arange(N)[None, :]].swapaxes(0, 1)
    states = jax.lax.scan(read, network.body.start(B), windows)[1]
    return jax.tree.map(lambda x: x[last_window], states)


@jit_float32
def _predict(network: Network, params: Params, features: Features) -> jax.Array:
    return network.output.log_probabilities(params, features)


@jit_float32
def _advance(network: Network, params: Params, state: DecodingState, ids_B: jax.Array) -> DecodingState:
    recent_BxN = jnp.concatenate([state.recent_BxN[:, 1:], ids_B[:, None]], axis=1)
    features, carry = network.features(params, recent_BxN, state.carry)
    return DecodingState(recent_BxN, carry, features)
