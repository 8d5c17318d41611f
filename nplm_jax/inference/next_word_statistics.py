"""Log-probability and rank of each token of a text, and the entropy of the next token before and after it.

All three come from the whole distribution over the vocabulary, which is held for a few contexts at a time.

Dims: T tokens of a line, N words of a context, B contexts, V vocabulary, L tokens of all lines with what is between.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nplm_jax.data.vocabulary import RARE_ID
from nplm_jax.inference.perplexity import check_not_nan
from nplm_jax.models.language_model import LanguageModel, join_lines

MAX_SCORES = 2**21  # probabilities held at once, unless there are more words
MAX_CONTEXTS = 256  # read at once

_NO_TOKEN = -1  # the target after the last token of a line


class LineStatistics(NamedTuple):
    """The statistics of one line.

    Attributes:
        log_p_T: log P of each token after those before it, float64, nats.
        rank_T: 1 plus the number of words that were likelier, int64.
        entropy_before_T: The entropy of the next token before each token, float64, nats; it includes all words.
        entropy_after_T: The entropy after each token.
    """

    log_p_T: np.ndarray
    rank_T: np.ndarray
    entropy_before_T: np.ndarray
    entropy_after_T: np.ndarray


def next_word_statistics(
    model: LanguageModel, lines: Sequence[np.ndarray], prefixes: Sequence[np.ndarray], vocabulary_size: int
) -> list[LineStatistics]:
    """Returns the statistics of lines, none of which depends on another.

    Args:
        model: Any model. One with an order reads windows, any other reads lines side by side in its decoding state.
        lines: The ids of each line, int32.
        prefixes: The ids that stand before each line and have no statistics, int32.
        vocabulary_size: |V|, which bounds how many contexts are read at once.

    Raises:
        NonFiniteError: A log-probability is not a number.
    """
    max_contexts = max(1, min(MAX_CONTEXTS, MAX_SCORES // vocabulary_size))
    prefixed = [np.concatenate([prefix, line]).astype(np.int32) for prefix, line in zip(prefixes, lines)]
    read = _read_in_step if model.n is None else _read_windows
    statistics = []
    for table_KxT, prefix in zip(read(model, prefixed, max_contexts), prefixes):
        log_p_T, rank_T, entropy_T = table_KxT
        check_not_nan(entropy_T, 0)
        first = len(prefix)
        log_p_T, rank_T = log_p_T[first:-1], rank_T[first:-1].astype(np.int64)
        statistics.append(LineStatistics(log_p_T, rank_T, entropy_T[first:-1], entropy_T[first + 1 :]))
    return statistics


def entropy(log_p_BxV: np.ndarray) -> np.ndarray:
    """Returns the entropy of each distribution, float64, B, nats.

    Args:
        log_p_BxV: Log-probabilities; a word of probability zero adds nothing.

    Examples:
        >>> entropy(np.log(np.array([[0.25, 0.25, 0.25, 0.25]]))) / np.log(2)
        array([2.])
    """
    log_p_BxV = np.asarray(log_p_BxV, np.float64)
    finite_BxV = np.where(np.isneginf(log_p_BxV), 0, log_p_BxV)
    return -np.einsum('bv,bv->b', np.exp(log_p_BxV), finite_BxV)


def _summarize(log_p_BxV: np.ndarray, ids_B: np.ndarray) -> np.ndarray:
    """Returns log P of each id (nan for _NO_TOKEN), its rank, and the entropy, float64, 3 x B."""
    log_p_BxV = np.asarray(log_p_BxV)
    of_ids_Bx1 = np.take_along_axis(log_p_BxV, np.maximum(ids_B, 0)[:, None], axis=1)
    ranks_B = 1 + (log_p_BxV > of_ids_Bx1).sum(1)
    log_p_B = np.where(ids_B == _NO_TOKEN, np.nan, of_ids_Bx1[:, 0].astype(np.float64))
    return np.stack([log_p_B, ranks_B, entropy(log_p_BxV)])


def _read_windows(model: LanguageModel, lines: Sequence[np.ndarray], max_contexts: int) -> Iterator[np.ndarray]:
    """Yields what `_summarize` returns at each token of a line and after the last one, 3 x (T + 1)."""
    assert model.n is not None
    N = model.n - 1
    ended = [np.append(line, _NO_TOKEN).astype(np.int32) for line in lines]
    stream_L, places = join_lines(ended, N)
    contexts_LxN = sliding_window_view(stream_L, N) if N else np.zeros((len(stream_L), 0), np.int32)
    positions_T = np.concatenate([np.arange(0), *(np.arange(place.start, place.stop) for place in places)])
    batch = min(max_contexts, 1 << max(0, len(positions_T) - 1).bit_length())
    table_KxT = np.empty((3, len(positions_T)))
    for start in range(0, len(positions_T), batch):
        positions_B = positions_T[start : start + batch]
        # The last batch is filled up, so that all have one shape and a network is compiled once.
        filled_B = np.resize(positions_B, batch)
        log_p_BxV = model.next_word(contexts_LxN[filled_B - N])[: len(positions_B)]
        table_KxT[:, start : start + batch] = _summarize(log_p_BxV, stream_L[positions_B])
    stops = np.cumsum([len(line) for line in ended])
    yield from (table_KxT[:, stop - len(line) : stop] for line, stop in zip(ended, stops))


def _read_in_step(model: LanguageModel, lines: Sequence[np.ndarray], max_contexts: int) -> Iterator[np.ndarray]:
    """Yields the same as `_read_windows`. Lines of similar length are read side by side, a token at a time."""
    order = sorted(range(len(lines)), key=lambda i: len(lines[i]))
    batch = min(max_contexts, 1 << max(0, len(lines) - 1).bit_length())
    tables: dict[int, np.ndarray] = {}
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        ids_BxT = np.full((batch, len(lines[rows[-1]]) + 1), RARE_ID, np.int32)
        for ids_T, i in zip(ids_BxT, rows):
            ids_T[: len(lines[i])], ids_T[len(lines[i])] = lines[i], _NO_TOKEN
        summaries = np.stack(list(_steps(model, ids_BxT)), axis=-1)
        tables |= {i: summaries[:, row, : len(lines[i]) + 1] for row, i in enumerate(rows)}
    yield from (tables[i] for i in range(len(lines)))


def _steps(model: LanguageModel, ids_BxT: np.ndarray) -> Iterator[np.ndarray]:
    """Yields what `_summarize` returns at each column of ids."""
    state = model.begin(ids_BxT[:, :0])
    for t, ids_B in enumerate(ids_BxT.T):
        yield _summarize(np.asarray(jax.device_get(model.predict(state))), ids_B)
        if t + 1 < ids_BxT.shape[1]:
            state = model.advance(state, np.maximum(ids_B, 0))
