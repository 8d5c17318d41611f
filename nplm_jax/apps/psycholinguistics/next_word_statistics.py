"""Computes the log-probability and rank of each token, and the entropy of the next token before and after it.

The statistics require full distributions over the vocabulary, but only a few contexts are in memory at a time.

Dims: T tokens in a line, S lines in a batch, L tokens per line and step, V vocabulary, G groups of tokens.
"""

import itertools
from typing import NamedTuple

import numpy as np
from scipy import special

from nplm_jax.data.stream import RARE_ID
from nplm_jax.inference.perplexity import check_not_nan
from nplm_jax.models.language_model import LanguageModel, State, reorder
from nplm_jax.runs.remote_scoring import Arrays

MAX_SCORES = 2**21  # maximum number of probabilities held at once, unless the vocabulary is larger
MAX_TOKENS = 256  # maximum number of tokens per step

_NO_TOKEN = -1  # the target after the last token of a line


class LineStatistics(NamedTuple):
    """The statistics of one line.

    Attributes:
        log_p_T: Log P of each token given the previous tokens, in nats, float64.
        rank_T: The rank of each token: 1 plus the number of more likely tokens, int64.
        entropy_before_T: The entropy of the distribution that predicts each token, in nats, float64.
        entropy_after_T: The entropy of the distribution over the tokens after each token, in nats, float64.
        log_groups_GxT1: The log-probability that the next token belongs to each group, in nats, float64, G x (T + 1).
            It is given before each token and after the last token.
    """

    log_p_T: np.ndarray
    rank_T: np.ndarray
    entropy_before_T: np.ndarray
    entropy_after_T: np.ndarray
    log_groups_GxT1: np.ndarray


def next_word_statistics(
    model: LanguageModel, lines: Arrays, prefixes: Arrays, vocabulary_size: int, groups: Arrays = ()
) -> list[LineStatistics]:
    """Computes the statistics of independent lines. A prefix shared by several lines is processed only once.

    Args:
        model: Any language model.
        lines: The token ids of each line, int32.
        prefixes: The token ids of the unscored context before each line, int32.
        vocabulary_size: The vocabulary size V, which limits the number of tokens that are read per step.
        groups: The token ids of each group.

    Returns:
        The statistics of each line.

    Raises:
        NonFiniteError: A log-probability is not a number.
    """
    max_tokens = max(1, min(MAX_TOKENS, MAX_SCORES // vocabulary_size))
    found: dict[int, LineStatistics] = {}
    order = sorted(range(len(lines)), key=lambda i: (prefixes[i].tobytes(), len(lines[i])))
    for _, group in itertools.groupby(order, key=lambda i: prefixes[i].tobytes()):
        rows = list(group)
        state = model.prefill(np.asarray(prefixes[rows[0]], np.int32)[None])
        side_by_side = min(max_tokens, 1 << (len(rows) - 1).bit_length())
        for first in range(0, len(rows), side_by_side):
            batch = rows[first : first + side_by_side]
            started = reorder(state, np.zeros(side_by_side, np.int32))
            L = max_tokens // side_by_side
            found |= zip(batch, _measure(model, started, [lines[i] for i in batch], L, groups))
    return [found[i] for i in range(len(lines))]


def entropy(log_p_BxV: np.ndarray) -> np.ndarray:
    """Returns the float64 entropy of each distribution in nats.

    Args:
        log_p_BxV: The log-probabilities of each distribution, in nats. They may contain -inf.

    Examples:
        >>> entropy(np.log(np.array([[0.25, 0.25, 0.25, 0.25]]))) / np.log(2)
        array([2.])
    """
    log_p_BxV = np.asarray(log_p_BxV, np.float64)
    finite_BxV = np.where(np.isneginf(log_p_BxV), 0, log_p_BxV)
    return -np.einsum('bv,bv->b', np.exp(log_p_BxV), finite_BxV)


def _measure(model: LanguageModel, state: State, lines: Arrays, L: int, groups: Arrays) -> list[LineStatistics]:
    """Computes the statistics of a batch of lines, L tokens per step.

    Args:
        model: The language model.
        state: The states of S streams before the lines. S may exceed the number of lines.
        lines: The token ids of each line.
        L: The number of tokens to read from each line per step.
        groups: The token ids of each group.
    """
    log_p_SxV = np.asarray(model.predict(state))
    longest = max(map(len, lines))
    # Padding gives all steps the same shape, so the network is compiled only once.
    ids_SxT = np.full((len(log_p_SxV), -(-longest // L) * L + 1), _NO_TOKEN, np.int32)
    for ids_T, line in zip(ids_SxT, lines):
        ids_T[: len(line)] = line
    tables = [_summarize(log_p_SxV[:, None], ids_SxT[:, :1], groups)]
    for first in range(0, longest, L):
        log_p_SxLxV, state = model.read(state, np.maximum(ids_SxT[:, first : first + L], RARE_ID))
        tables.append(_summarize(np.asarray(log_p_SxLxV), ids_SxT[:, first + 1 : first + L + 1], groups))
    statistics = []
    for line, (log_p_T, rank_T, entropy_T, *groups_T) in zip(lines, np.concatenate(tables, axis=2).swapaxes(0, 1)):
        T = len(line)
        check_not_nan(entropy_T[: T + 1], 0)
        groups_GxT1 = np.array([group_T[: T + 1] for group_T in groups_T]).reshape(len(groups), T + 1)
        ranks_T = rank_T[:T].astype(np.int64)
        statistics.append(LineStatistics(log_p_T[:T], ranks_T, entropy_T[:T], entropy_T[1 : T + 1], groups_GxT1))
    return statistics


def _summarize(log_p_SxLxV: np.ndarray, ids_SxL: np.ndarray, groups: Arrays) -> np.ndarray:
    """Returns the stacked log P and rank of each id, entropy, and log P of each group, float64, (3 + G) x S x L.

    At positions without an id, log P and rank are undefined.
    """
    of_ids_SxLx1 = np.take_along_axis(log_p_SxLxV, np.maximum(ids_SxL, 0)[:, :, None], axis=2)
    ranks_SxL = 1 + (log_p_SxLxV > of_ids_SxLx1).sum(axis=2)
    entropy_SxL = entropy(log_p_SxLxV.reshape(ids_SxL.size, -1)).reshape(ids_SxL.shape)
    groups_SxL = [special.logsumexp(log_p_SxLxV[:, :, ids].astype(np.float64), axis=2) for ids in groups]
    return np.stack([of_ids_SxLx1[:, :, 0].astype(np.float64), ranks_SxL, entropy_SxL, *groups_SxL])
