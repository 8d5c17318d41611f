"""A trained network as a language model.

Dims: V vocabulary, N context words, B contexts, lines or words of a block, T words of a stream or a line, G groups of
words.
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
LENGTH_MULTIPLE = 16  # words of a line that are read at once, and what lengths are rounded up to: few programs compile
MIN_LINES, MAX_LINES = 64, 1024  # lines read in parallel
_NO_WORD = -1  # after the end of a line


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

    def score_span(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.score_span`. A body with a carry reads `burn_in` words before the span first."""
        return self._apply_to_span(_score_stream, tokens_T, span)

    def group_probabilities(self, tokens_T: np.ndarray, span: Span, groups_V: np.ndarray) -> np.ndarray:
        """Returns the probability that each group of words has at each position of a span.

        Args:
            tokens_T: Ids of the stream.
            span: The positions to predict.
            groups_V: The group of each word, numbered from 0.

        Returns:
            The sums of P(w) over the words w of each group, len(span) x G, float32.
        """
        one_hot_VxG = jax.nn.one_hot(groups_V, int(np.max(groups_V)) + 1)
        return self._apply_to_span(functools.partial(_group_probabilities, one_hot_VxG), tokens_T, span)

    def _apply_to_span(self, function: Callable[..., jax.Array], tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """Applies a compiled function to blocks of consecutive positions, and returns its results in order."""
        start, N = max(0, span.start - self.network.body.burn_in), self.network.body.num_context
        words_L = with_history(tokens_T, Span(start, span.stop), N).astype(np.int32)
        positions_SxB = dataset.consecutive_positions(Span(N, len(words_L)), SCORING_BATCH)
        blocks = np.asarray(function(self.network, self.params, words_L, positions_SxB))
        return blocks.reshape(-1, *blocks.shape[2:])[span.start - start : span.stop - start]

    def score_lines(self, lines: Sequence[np.ndarray]) -> list[np.ndarray]:
        """See `LanguageModel.score_lines`. Lines are read in parallel; of equal beginnings only one is scored."""
        log_p = [np.zeros(0, np.float32)] * len(lines)
        blocks, order = group_lines(lines)
        num_lines = min(MAX_LINES, max(MIN_LINES, 1 << max(0, len(order) - 1).bit_length()))
        for first in range(0, len(order), num_lines):
            batch = order[first : first + num_lines]
            lines_BxT = np.full((num_lines, LENGTH_MULTIPLE * blocks[batch[-1]]), _NO_WORD, np.int32)
            for row_T, i in zip(lines_BxT, batch):
                row_T[: len(lines[i])] = lines[i]
            for row_T, i in zip(self._score_batch(lines_BxT), batch):
                log_p[i] = row_T[: len(lines[i])].copy()
        return log_p

    def _score_batch(self, lines_BxT: np.ndarray) -> np.ndarray:
        """Returns log P of each word after the words before it in its line, B x T, nats; 0 after the end of a line.

        Args:
            lines_BxT: Word ids, then _NO_WORD. Lines with equal beginnings are next to each other.
        """
        (B, T), N = lines_BxT.shape, self.network.body.num_context
        source_rows_BxT = first_rows(lines_BxT)
        is_scored_BxT = (source_rows_BxT == np.arange(B)[:, None]) & (lines_BxT != _NO_WORD)
        words_BxL = np.pad(
            np.where(lines_BxT == _NO_WORD, RARE_ID, lines_BxT), ((0, 0), (N, 0)), constant_values=RARE_ID
        )
        log_p_BxT, carry = np.zeros((B, T), np.float32), self.network.body.start(B)
        for start in range(0, T, LENGTH_MULTIPLE):
            stop = start + LENGTH_MULTIPLE
            features, carry = _read_lines(self.network, self.params, words_BxL[:, start : stop + N - 1], carry)
            positions_E = np.flatnonzero(is_scored_BxT[:, start:stop])
            targets_E = lines_BxT[:, start:stop].reshape(-1)[positions_E]
            log_p_E = self._score_examples(features, positions_E, targets_E)
            log_p_BxT[positions_E // LENGTH_MULTIPLE, start + positions_E % LENGTH_MULTIPLE] = log_p_E
        return np.take_along_axis(log_p_BxT, source_rows_BxT, axis=0)

    def _score_examples(self, features: Features, positions_E: np.ndarray, targets_E: np.ndarray) -> np.ndarray:
        """Returns log P of E targets, nats, each predicted from the features at its position."""
        E, num_positions = len(targets_E), len(next(iter(features.values())))
        num_blocks, max_blocks = -(-E // SCORING_BATCH), -(-num_positions // SCORING_BATCH)
        examples_2xL = np.zeros((2, max_blocks * SCORING_BATCH), np.int32)  # one shape, so that one program compiles
        examples_2xL[:, :E] = positions_E, targets_E
        positions_KxB, targets_KxB = examples_2xL.reshape(2, max_blocks, SCORING_BATCH)
        log_p_KxB = _score_blocks(self.network, self.params, features, positions_KxB, targets_KxB, num_blocks)
        return np.asarray(log_p_KxB).reshape(-1)[:E]

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


def group_lines(lines: Sequence[np.ndarray]) -> tuple[list[int], list[int]]:
    """Returns how many blocks of LENGTH_MULTIPLE words each line has, and the order in which lines are scored.

    Lines of as many blocks follow each other, and among these lines with equal beginnings. Empty lines are left out.
    """
    blocks = [-(-len(line) // LENGTH_MULTIPLE) for line in lines]
    kept = (i for i, number in enumerate(blocks) if number)
    return blocks, sorted(kept, key=lambda i: (blocks[i], np.asarray(lines[i], np.int32).tobytes()))


def first_rows(lines_BxT: np.ndarray) -> np.ndarray:
    """Returns for each word the first of the adjacent rows that share the prefix ending at this word, B x T.

    Examples:
        >>> first_rows(np.array([[5, 6, 7], [5, 6, 8], [5, 9, 8]]))
        array([[0, 0, 0],
               [0, 0, 1],
               [0, 2, 2]])
    """
    differs_BxT = np.ones(lines_BxT.shape, bool)
    differs_BxT[1:] = np.logical_or.accumulate(lines_BxT[1:] != lines_BxT[:-1], axis=1)
    rows_Bx1 = np.arange(len(lines_BxT))[:, None]
    return np.maximum.accumulate(np.where(differs_BxT, rows_Bx1, 0), axis=0)


def jit_float32(function: Callable[..., Any], static_argnames: Sequence[str] = ('network',)) -> Any:
    """Compiles a function of a network with full float32 products (accelerators default to fewer bits)."""
    return jax.jit(jax.default_matmul_precision('float32')(function), static_argnames=static_argnames)


@jit_float32
def _score_stream(network: Network, params: Params, tokens_T: jax.Array, positions_SxB: jax.Array) -> jax.Array:
    """Returns log P of the words at these positions, which are consecutive, S x B, nats."""
    return _map_blocks(
        lambda features, targets_B: -network.output.nll(params, features, targets_B),
        network,
        params,
        tokens_T,
        positions_SxB,
    )


@jit_float32
def _group_probabilities(
    one_hot_VxG: jax.Array, network: Network, params: Params, tokens_T: jax.Array, positions_SxB: jax.Array
) -> jax.Array:
    """Returns the probability of each group of words at these positions, which are consecutive, S x B x G."""
    return _map_blocks(
        lambda features, targets_B: jnp.exp(network.output.log_probabilities(params, features)) @ one_hot_VxG,
        network,
        params,
        tokens_T,
        positions_SxB,
    )


def _map_blocks(
    function: Callable[[Features, jax.Array], jax.Array],
    network: Network,
    params: Params,
    tokens_T: jax.Array,
    positions_SxB: jax.Array,
) -> jax.Array:
    """Applies a function to the features and the targets of each block of consecutive positions."""

    def apply_to_block(carry: Carry, positions_B: jax.Array) -> tuple[Carry, jax.Array]:
        contexts_BxN, targets_B = dataset.windows(tokens_T, positions_B, network.body.num_context)
        features, carry = network.features(params, contexts_BxN, carry)
        return carry, function(features, targets_B)

    return jax.lax.scan(apply_to_block, network.body.start(1), positions_SxB)[1]


@jit_float32
def _read_lines(network: Network, params: Params, words_BxL: jax.Array, carry: Carry) -> tuple[Features, Carry]:
    """Returns the features that predict the words of each line after its first N, line by line, and the next carry.

    The last word of a line is predicted and not read, so L is N - 1 more than the words that are predicted.
    """
    N = network.body.num_context
    windows_TxN = jnp.arange(words_BxL.shape[1] - N + 1)[:, None] + jnp.arange(N)[None, :]
    return network.features(params, words_BxL[:, windows_TxN].reshape(-1, N), carry)


@jit_float32
def _score_blocks(
    network: Network,
    params: Params,
    features: Features,
    positions_KxB: jax.Array,
    targets_KxB: jax.Array,
    num_blocks: jax.Array,
) -> jax.Array:
    """Returns log P of the targets in the first blocks, K x B, nats, each predicted from the features at its position.

    One program for any number of blocks: each call would allocate the V x B scores anew.
    """

    def score_block(k: jax.Array, log_p_KxB: jax.Array) -> jax.Array:
        block = jax.tree.map(lambda x: x[positions_KxB[k]], features)
        return log_p_KxB.at[k].set(-network.output.nll(params, block, targets_KxB[k]))

    return jax.lax.fori_loop(0, num_blocks, score_block, jnp.zeros(positions_KxB.shape))


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
