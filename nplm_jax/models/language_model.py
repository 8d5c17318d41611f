"""The interface of all language models. Evaluation, mixtures, generation and scoring depend only on this interface.

Dims: T words in a stream, B contexts or lines, N words per context, V vocabulary, S parallel streams, L words per
stream.
"""

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nplm_jax.data.stream import RARE_ID, Span
from nplm_jax.utils.errors import require

if TYPE_CHECKING:
    from nplm_jax.data.vocabulary import Vocabulary

State = Any  # the decoding state, a pytree of arrays with one row per stream


class LanguageModel(abc.ABC):
    """A language model, which defines P(w_t | previous words) over a closed vocabulary of V words.

    `score` returns the log-probabilities of the words in a text, and `next_word` returns the distribution after each
    context. Text generation uses a decoding state, so that the model reads each word only once:

    - `prefill` returns the state after the first words of each stream.
    - `predict` returns the distribution of the next word.
    - `advance` returns the state after one more word per stream.
    - `read` combines `advance` and `predict` for several words per stream.

    A subclass must define `n`, `score_span` and `next_word`, and may override the other methods with faster versions.

    Attributes:
        n: The order. Each word is predicted from the n - 1 previous words, or from all previous words if n is None.
        vocabulary_size: V, or None if V is unknown. In this case, word ids are not checked against V.
        vocabulary: The vocabulary of a loaded model (`LoadedModel.model`), or None for other models. The models in a
            mixture must have equal vocabularies.
    """

    n: int | None
    vocabulary_size: int | None = None
    vocabulary: 'Vocabulary | None' = None

    def __repr__(self) -> str:
        return f'<{", ".join(filter(None, (type(self).__name__, f"n={self.n}", self._describe_size())))}>'

    def _describe_size(self) -> str:
        """Returns a short description for the `repr`."""
        return ''

    def score(self, tokens_T: np.ndarray, span: Span | slice | None = None) -> np.ndarray:
        """Returns the float32 log P(w_t | w_1 ... w_{t-1}) of each word in a span, in nats.

        Args:
            tokens_T: The word ids of the complete stream, one-dimensional, integer.
            span: The words to score: a Span, a slice without a step, or None for all words.

        Raises:
            BadInput: The ids are not a sequence of integers below V, or the span extends beyond the stream.
        """
        require(np.ndim(tokens_T) == 1, 'tokens', np.shape(tokens_T), 'must be a one-dimensional array of ids')
        if span is None or isinstance(span, slice):
            start, stop, step = (span or slice(None)).indices(len(tokens_T))
            require(step == 1, 'span', span, 'must be a Span or a slice with a step of 1')
            span = Span(start, max(start, stop))
        is_inside = isinstance(span, Span) and 0 <= span.start <= span.stop <= len(tokens_T)
        require(is_inside, 'span', span, f'must be a Span or a slice within the {len(tokens_T):,} words of the stream')
        first = max(0, span.start - self.n) if self.n else 0
        check_ids('tokens', tokens_T[first : span.stop], self.vocabulary_size)
        return self.score_span(tokens_T, span)

    @abc.abstractmethod
    def score_span(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """Implements `score` for a Span."""

    @abc.abstractmethod
    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """Returns the float32 log P(w | context) of all words in nats, B x V.

        Args:
            contexts_BxN: Word ids in reading order, the most recent word last. Unless n is None, only the last n - 1
                words are used. As at the beginning of a stream, shorter contexts are padded on the left with rare-word
                symbols: n - 1 symbols for n-grams and windows, and one symbol for a network with a state.
        """

    def prefill(self, ids_SxL: np.ndarray) -> State:
        """Reads the first words of each stream and returns the decoding state after them.

        Unless a subclass overrides this method, the state consists of the last n - 1 words of each stream, or of all
        words if n is None.
        """
        return last_words(check_contexts(ids_SxL, self.vocabulary_size), self.n)

    def predict(self, state: State) -> jax.Array | np.ndarray:
        """Returns log P of every possible next word of each stream in nats, S x V."""
        return self.next_word(state)

    def advance(self, state: State, ids_S: jax.Array | np.ndarray) -> State:
        """Returns the decoding state after one more word of each stream."""
        return last_words(np.concatenate([state, np.asarray(ids_S)[:, None]], axis=1), self.n)

    def read(self, state: State, ids_SxL: np.ndarray) -> tuple[jax.Array | np.ndarray, State]:
        """Reads L words per stream and predicts the word after each of them.

        Returns:
            A tuple (log_p, state). `log_p` contains log P of every possible next word after each of the L words,
            S x L x V, nats. `state` is the decoding state after the last word.
        """
        if self.n is None:
            log_p = []
            for ids_S in ids_SxL.T:
                state = self.advance(state, ids_S)
                log_p.append(np.asarray(self.predict(state)))
            return np.stack(log_p, axis=1), state
        words, (S, L) = np.concatenate([state, ids_SxL], axis=1), ids_SxL.shape
        windows_SxLxN = sliding_window_view(words, self.n - 1, axis=1)[:, 1:]
        log_p_BxV = self.next_word(windows_SxLxN.reshape(S * L, self.n - 1))
        return log_p_BxV.reshape(S, L, -1), last_words(words, self.n)

    def score_lines(self, lines: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Returns log P of each word in each line given the previous words in the line, in nats.

        At the beginning of a line, the context is padded with rare-word symbols. If n is None, each line is scored as a
        separate stream.

        Returns:
            One array per line with the log-probability of each of its words.
        """
        check_lines(lines, self.vocabulary_size)
        if self.n is None:
            return [self.score(line, Span(0, len(line))) for line in lines]
        stream_T, line_slices = join_lines(lines, self.n - 1)
        log_p_T = self.score(stream_T, Span(0, len(stream_T)))
        return [log_p_T[line_slice] for line_slice in line_slices]

    def matched_lengths(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """Returns the length of the n-gram with which the model predicts each word in `span`, including that word.

        Unless a subclass overrides this method, the length is n for every word, or len(span) if n is None.
        `scoring.score` limits the lengths, so that no n-gram begins before the current line.
        """
        return np.full(len(span), self.n or len(span))


_take_rows = jax.jit(lambda arrays, rows_K: [x[rows_K] for x in arrays])


def reorder(state: State, rows_K: np.ndarray) -> State:
    """Selects streams of a decoding state. Stream k of the result is stream `rows_K[k]` of `state`; rows may repeat."""
    leaves, structure = jax.tree.flatten(state)
    on_device = [x for x in leaves if isinstance(x, jax.Array)]
    taken = iter(_take_rows(on_device, rows_K) if on_device else ())
    return jax.tree.unflatten(structure, [next(taken) if isinstance(x, jax.Array) else x[rows_K] for x in leaves])


def join_lines(lines: Sequence[np.ndarray], num_before: int) -> tuple[np.ndarray, list[slice]]:
    """Joins lines into a single stream, with `num_before` rare-word symbols before each line.

    Returns:
        The word ids of the stream, int32, and the slice of the stream that contains each line.
    """
    padding = np.full(num_before, RARE_ID, np.int32)
    stream_T = np.concatenate([np.zeros(0, np.int32), *(part for line in lines for part in (padding, line))])
    stops = np.cumsum([num_before + len(line) for line in lines], dtype=int)
    return stream_T.astype(np.int32), [slice(stop - len(line), stop) for line, stop in zip(lines, stops)]


def last_words(ids_SxL: np.ndarray, n: int | None) -> np.ndarray:
    """Returns the last n - 1 words of each stream, left-padded with rare-word symbols, or all words if n is None."""
    if n is None:
        return ids_SxL
    return np.pad(ids_SxL, ((0, 0), (n - 1, 0)), constant_values=RARE_ID)[:, ids_SxL.shape[1] :]


def check_ids(key: str, ids: Any, vocabulary_size: int | None) -> None:
    """Raises BadInput unless all ids are valid word ids.

    Args:
        key: The argument name for the error message.
        ids: The ids. An empty array may have any dtype.
        vocabulary_size: V, the exclusive upper limit of the ids. If None, ids are not compared with V.
    """
    ids = np.asarray(ids)
    if not ids.size:
        return
    require(np.issubdtype(ids.dtype, np.integer), key, str(ids.dtype), 'must be integer word ids')
    if vocabulary_size is not None:
        allowed = f'must be between 0 and {vocabulary_size - 1:,}, because the vocabulary has {vocabulary_size:,} words'
        for extreme in (int(ids.min()), int(ids.max())):
            require(0 <= extreme < vocabulary_size, key, extreme, allowed)


def check_lines(lines: Sequence[np.ndarray], vocabulary_size: int | None) -> None:
    """Raises BadInput unless all lines contain only valid word ids. See `check_ids`."""
    if full := [line for line in lines if len(line)]:
        check_ids('lines', np.concatenate(full), vocabulary_size)


def check_contexts(contexts_BxN: Any, vocabulary_size: int | None) -> np.ndarray:
    """Converts contexts to an int32 matrix. Raises BadInput unless each row consists of valid word ids."""
    contexts_BxN = np.asarray(contexts_BxN)
    require(contexts_BxN.ndim == 2, 'contexts', contexts_BxN.shape, 'must be a matrix of word ids, one context per row')
    check_ids('contexts', contexts_BxN, vocabulary_size)
    return contexts_BxN.astype(np.int32)
