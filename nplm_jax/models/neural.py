"""Implements the interface of language models for trained networks.

All inputs are processed by a single function, `network_reading.read`: blocks of a corpus, parallel lines, contexts, and
single words in decoding.

Dims: V vocabulary, S streams, L words per stream and call, R words of lookback (`Body.lookback`), B = S * L examples, K
blocks, T words of a span or a line, G groups of words.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.data.stream import RARE_ID, Span
from nplm_jax.distributed.mapping import map_parts, mesh_context
from nplm_jax.distributed.sharding import DATA, ONE_DEVICE, MeshSharding, fetch, num_parts, unpad
from nplm_jax.models.body import by_example
from nplm_jax.models.language_model import LanguageModel, check_contexts, check_ids, check_lines
from nplm_jax.models.network import Network
from nplm_jax.models.network_reading import ReadState, jit_float32, max_streams, read, start_state, stream_blocks
from nplm_jax.outputs.blockwise import default_block_size
from nplm_jax.outputs.output_layer import Features, Params
from nplm_jax.outputs.softmax import group_probabilities

SCORING_BATCH = 256  # minimum number of words scored at once; their V x B scores fit into a CPU's cache
MAX_SCORES = 2**28  # maximum scores per device and block (1 GiB in float32); SCORING_BATCH words are always allowed
LENGTH_MULTIPLE = 16  # words of a line or context read per call; constant to limit the number of compiled programs
MIN_LINES, MAX_LINES, MAX_STATE_BYTES = 64, 1024, 2**26  # lines read in parallel, and the limit of their states
MAX_LENGTH = 2**17  # words; longer lines are read as streams, because parallel lines are padded to the longest line
_NO_WORD = -1  # padding after the end of a line


class DecodingState(NamedTuple):
    """The decoding state of a network.

    Attributes:
        read: The state of the network after the last word.
        features: The features after the last word of each stream, S x D, by the name of their output matrix.
    """

    read: ReadState
    features: Features


class NeuralLanguageModel(LanguageModel):
    """A network with its parameters as a language model. Probabilities are exact, in float32 and without dropout."""

    def __init__(self, network: Network, params: Params, sharding: MeshSharding = ONE_DEVICE) -> None:
        """Creates a model from a network and its parameters, which are not copied.

        Args:
            network: The network, without its parameters.
            params: The parameters, placed on the devices by `sharding.shard`.
            sharding: How parameters and scored words are divided over devices; see `sharding.scoring_sharding`.
        """
        self.network = network
        self.placed_params = params
        self.sharding = sharding
        self.vocabulary_size = network.vocabulary_size
        self.n = None if network.body.reach is None else network.body.reach + 1

    def _describe_size(self) -> str:
        size = self.network.num_parameters()
        return f'{type(self.network.body).__name__}, {self.network.vocabulary_size:,} words, {size:,} parameters'

    def score_span(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.score_span`. To fill the state, first reads the `Body.burn_in` words before the span."""
        return self._read_span(tokens_T, span, None)

    def group_probabilities(self, tokens_T: np.ndarray, span: Span, groups_V: np.ndarray) -> np.ndarray:
        """Returns the total probability of each group of words at each position of a span.

        Args:
            tokens_T: The word ids of the stream.
            span: The positions to predict.
            groups_V: The group number of each word, from 0 to G - 1.

        Returns:
            The sum of P(w) over the words in each group, len(span) x G, float32.
        """
        return self._read_span(tokens_T, span, jax.nn.one_hot(groups_V, int(np.max(groups_V)) + 1))

    def _read_span(self, tokens_T: np.ndarray, span: Span, one_hot_VxG: jax.Array | None) -> np.ndarray:
        start = max(0, span.start - self.network.body.burn_in)
        blocks = stream_blocks(self.network, tokens_T, Span(start, span.stop), self.scoring_block(span.stop - start))
        inputs = self.sharding.put((*blocks, one_hot_VxG))
        found = fetch(_read_stream(self.network, self.placed_params, *inputs, self.sharding))
        return found.reshape(-1, *found.shape[2:])[span.start - start : span.stop - start]

    def scoring_block(self, num_words: int) -> int:
        """Returns the number of words per block for a span. Short spans use small blocks to limit padding."""
        network, num_devices = self.network, num_parts(self.sharding)
        # With a stateful body, every device must read all words in a block, but it scores only its share of them.
        num_readers = num_devices if network.body.start(1) is None else 1
        largest = min(default_block_size(self.sharding.platform), MAX_SCORES // network.vocabulary_size)
        share = 1 << max(0, -(-num_words // num_readers) - 1).bit_length()  # powers of two limit compilations
        size = max(SCORING_BATCH, min(largest, share))
        return size * num_readers + -size * num_readers % num_devices

    @functools.cached_property
    def params(self) -> Params:
        """The complete parameters on a single device, which all methods except those that score a span use."""
        full = self.sharding.unshard(self.placed_params, self.network.num_rows)
        return full if self.sharding.mesh is None else jax.tree.map(jnp.asarray, full)

    def score_lines(self, lines: Sequence[np.ndarray]) -> list[np.ndarray]:
        """See `LanguageModel.score_lines`. Reads lines in batches, and scores shared prefixes once per batch."""
        check_lines(lines, self.vocabulary_size)
        log_p = [np.zeros(0, np.float32)] * len(lines)
        (blocks, order), most = group_lines(lines), max_streams(self.network.body, MAX_STATE_BYTES)
        while order and len(line := np.asarray(lines[order[-1]])) > MAX_LENGTH:
            log_p[order.pop()] = self.score_span(line, Span(0, len(line)))
        num_lines = min(MAX_LINES, max(MIN_LINES, 1 << max(0, len(order) - 1).bit_length()), most)
        for first in range(0, len(order), num_lines):
            batch = order[first : first + num_lines]
            lines_SxT = np.full((num_lines, LENGTH_MULTIPLE * blocks[batch[-1]]), _NO_WORD, np.int32)
            for row_T, i in zip(lines_SxT, batch):
                row_T[: len(lines[i])] = lines[i]
            for row_T, i in zip(self._score_batch(lines_SxT), batch):
                log_p[i] = row_T[: len(lines[i])].copy()
        return log_p

    def _score_batch(self, lines_SxT: np.ndarray) -> np.ndarray:
        """Returns log P in nats of each word given the previous words in its line, and 0 after the line, S x T.

        Args:
            lines_SxT: Word ids, int32, padded with _NO_WORD. Lines that share a prefix must be adjacent.
        """
        (S, T), source_rows_SxT = lines_SxT.shape, first_rows(lines_SxT)
        is_scored_SxT = (source_rows_SxT == np.arange(S)[:, None]) & (lines_SxT != _NO_WORD)
        before_SxT = np.roll(np.where(lines_SxT == _NO_WORD, RARE_ID, lines_SxT), 1, axis=1)
        before_SxT[:, 0] = RARE_ID
        log_p_SxT, state = np.zeros((S, T), np.float32), start_state(self.network, S)
        for first in range(0, T, LENGTH_MULTIPLE):
            stop = first + LENGTH_MULTIPLE
            features, state = compiled_read(self.network, self.params, state, before_SxT[:, first:stop])
            positions_E = np.flatnonzero(is_scored_SxT[:, first:stop])
            targets_E = lines_SxT[:, first:stop].reshape(-1)[positions_E]
            log_p_E = self._score_examples(features, positions_E, targets_E)
            log_p_SxT[positions_E // LENGTH_MULTIPLE, first + positions_E % LENGTH_MULTIPLE] = log_p_E
        return np.take_along_axis(log_p_SxT, source_rows_SxT, axis=0)

    def _score_examples(self, features: Features, positions_E: np.ndarray, targets_E: np.ndarray) -> np.ndarray:
        """Returns log P of E targets in nats, given features of S x L positions, which are in stream order."""
        E, (S, L, _) = len(targets_E), next(iter(features.values())).shape
        num_blocks, max_blocks = -(-E // SCORING_BATCH), -(-S * L // SCORING_BATCH)
        examples_2xL = np.zeros((2, max_blocks * SCORING_BATCH), np.int32)  # a fixed shape needs only one compilation
        examples_2xL[:, :E] = positions_E, targets_E
        positions_KxB, targets_KxB = examples_2xL.reshape(2, max_blocks, SCORING_BATCH)
        log_p_KxB = _score_blocks(self.network, self.params, features, positions_KxB, targets_KxB, num_blocks)
        return np.asarray(log_p_KxB).reshape(-1)[:E]

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """See `LanguageModel.next_word`."""
        return np.asarray(self.predict(self.prefill(contexts_BxN)))

    def prefill(self, ids_SxL: np.ndarray) -> DecodingState:
        """See `LanguageModel.prefill`. Pads the words on the left with `lookback` + 1 rare-word symbols."""
        ids_SxL, body = check_contexts(ids_SxL, self.vocabulary_size), self.network.body
        ids_SxL = np.pad(ids_SxL, ((0, 0), (body.lookback + 1, 0)), constant_values=RARE_ID)
        if body.reach is not None:
            ids_SxL = ids_SxL[:, -max(body.reach, body.lookback + 1) :]
        state = ReadState(ids_SxL[:, : body.lookback], body.start(len(ids_SxL)))
        ids_SxL = ids_SxL[:, body.lookback :]
        L = ids_SxL.shape[1]
        sizes = [LENGTH_MULTIPLE] * (L // LENGTH_MULTIPLE) + [1] * (L % LENGTH_MULTIPLE)
        for part_SxL in np.split(ids_SxL, np.cumsum(sizes)[:-1], axis=1):
            found = _advance(self.network, self.params, state, part_SxL)
            state = found.read
        return found

    def predict(self, state: DecodingState) -> jax.Array:
        """See `LanguageModel.predict`."""
        return _predict(self.network, self.params, state.features)

    def advance(self, state: DecodingState, ids_S: jax.Array | np.ndarray) -> DecodingState:
        """See `LanguageModel.advance`. Ids in a JAX array are not checked, because the host would wait for them."""
        if not isinstance(ids_S, jax.Array):
            check_ids('words', ids_S, self.vocabulary_size)
        return _advance(self.network, self.params, state.read, jnp.asarray(ids_S)[:, None])

    def read(self, state: DecodingState, ids_SxL: np.ndarray) -> tuple[jax.Array, DecodingState]:
        """See `LanguageModel.read`."""
        check_ids('words', ids_SxL, self.vocabulary_size)
        features, read_state = compiled_read(self.network, self.params, state.read, ids_SxL)
        log_p_BxV = _predict(self.network, self.params, by_example(features))
        last = DecodingState(read_state, {name: x[:, -1] for name, x in features.items()})
        return log_p_BxV.reshape(*ids_SxL.shape, -1), last


def group_lines(lines: Sequence[np.ndarray]) -> tuple[list[int], list[int]]:
    """Determines the number of blocks of LENGTH_MULTIPLE words in each line, and the order in which to score the lines.

    Non-empty lines are ordered by their number of blocks. Among lines with the same number, those that share a prefix
    are adjacent. Returns the number of blocks of every line, and the indices of the non-empty lines in this order.
    """
    blocks = [-(-len(line) // LENGTH_MULTIPLE) for line in lines]
    kept = (i for i, number in enumerate(blocks) if number)
    return blocks, sorted(kept, key=lambda i: (blocks[i], np.asarray(lines[i], np.int32).tobytes()))


def first_rows(lines_BxT: np.ndarray) -> np.ndarray:
    """Returns, for each word, the index of the first adjacent row with the same words up to that word, B x T.

    Examples:
        >>> first_rows(np.array([[5, 6, 7], [5, 6, 8], [5, 9, 8]]))
        array([[0, 0, 0],
               [0, 0, 1],
               [0, 2, 2]])
    """
    differs_BxT = np.ones(lines_BxT.shape, bool)
    differs_BxT[1:] = np.logical_or.accumulate(lines_BxT[1:] != lines_BxT[:-1], axis=1)
    return np.maximum.accumulate(differs_BxT * np.arange(len(lines_BxT))[:, None], axis=0)


compiled_read = jit_float32(read)


@functools.partial(jit_float32, static_argnames=('network', 'sharding'))
def _read_stream(
    network: Network,
    params: Params,
    state: ReadState,
    ids_KxB: jax.Array,
    targets_KxB: jax.Array,
    one_hot_VxG: jax.Array | None,
    sharding: MeshSharding = ONE_DEVICE,
) -> jax.Array:
    """Returns log P of each target in nats (K x B) or, with `one_hot_VxG`, P of each group of words (K x B x G).

    With a window, each device reads a part of the stream. With a stateful body, each device reads the whole stream and
    computes the probabilities of its share of each block.
    """

    def read_blocks(
        params: Params, state: ReadState, ids_KxB: jax.Array, targets_KxB: jax.Array, one_hot_VxG: jax.Array | None
    ) -> jax.Array:
        params = unpad(params, sharding, network.num_rows)

        def read_block(state: ReadState, block: tuple[jax.Array, jax.Array]) -> tuple[ReadState, jax.Array]:
            ids_B, targets_B = block
            features, state = read(network, params, state, ids_B[None])
            features, size = by_example(features), len(targets_B)
            if size < len(ids_B):
                first = size * jax.lax.axis_index(DATA)
                features = {name: jax.lax.dynamic_slice_in_dim(x, first, size) for name, x in features.items()}
            if one_hot_VxG is None:
                return state, -network.output.nll(params, features, targets_B)
            return state, group_probabilities(network.output, params, features, one_hot_VxG)

        return jax.lax.scan(read_block, state, (ids_KxB, targets_KxB))[1]

    if (parts := num_parts(sharding)) > 1 and state.body is None:
        words_L = jnp.concatenate([state.recent_SxR[0], ids_KxB.reshape(-1)])
        firsts_Dx1 = np.arange(0, ids_KxB.size, ids_KxB.size // parts)[:, None]
        state = ReadState(words_L[firsts_Dx1 + np.arange(network.body.lookback)], None)
        ids_KxB, targets_KxB = (x.reshape(parts * len(x), -1) for x in (ids_KxB, targets_KxB))
        read_blocks = map_parts(read_blocks, sharding, (None, 0, 0, 0, None), 0)
    elif parts > 1:
        read_blocks = map_parts(read_blocks, sharding, (None, None, None, 1, None), 1)
    with mesh_context(sharding):  # the output layer reads whether the words are divided over devices
        return read_blocks(params, state, ids_KxB, targets_KxB, one_hot_VxG)


@jit_float32
def _score_blocks(
    network: Network,
    params: Params,
    features: Features,
    positions_KxB: jax.Array,
    targets_KxB: jax.Array,
    num_blocks: jax.Array,
) -> jax.Array:
    """Returns log P of the targets in the first `num_blocks` blocks in nats, and 0 for the remaining blocks, K x B.

    All blocks are scored in one call, because each call allocates a new V x B array of scores.
    """
    features = by_example(features)

    def score_block(k: jax.Array, log_p_KxB: jax.Array) -> jax.Array:
        block = jax.tree.map(lambda x: x[positions_KxB[k]], features)
        return log_p_KxB.at[k].set(-network.output.nll(params, block, targets_KxB[k]))

    return jax.lax.fori_loop(0, num_blocks, score_block, jnp.zeros(positions_KxB.shape))


@jit_float32
def _advance(network: Network, params: Params, state: ReadState, ids_SxL: jax.Array) -> DecodingState:
    """Returns the decoding state after the next words of each stream."""
    features, state = read(network, params, state, ids_SxL)
    return DecodingState(state, {name: x[:, -1] for name, x in features.items()})


@jit_float32
def _predict(network: Network, params: Params, features: Features) -> jax.Array:
    return network.output.log_probabilities(params, features)
