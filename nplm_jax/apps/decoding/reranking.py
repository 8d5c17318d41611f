"""Weights of the scores of n-best lists, tuned on references by the error of the alternatives that they put first.

The total of an alternative is the sum of its scores times the weights. As a function of one weight it is a line, and
the first alternative of a list changes only where two lines of the upper envelope meet. So the error is known exactly
for all values of this weight, and a search goes from weight to weight (Och, 2003). It is repeated from several starts,
since it ends where no single weight helps.

Dims: A alternatives of all lists, F scores of each, S statistics of each.

References:
    Och, Minimum error rate training in statistical machine translation, ACL 2003.
"""

import collections
import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from nltk.metrics.distance import edit_distance

MAX_ORDER = 4  # of BLEU's n-grams
MAX_STEP = 10.0  # how far a search goes beyond the outermost meeting point, in units of the weights
_IMPOSSIBLE = -1e20  # a smaller log P is one of zero: -inf, or -1e30 in a search
_PENALTY = 100.0  # of an alternative with probability zero, below the smallest log P of the others
_MIN_GAIN = 1e-9
_RANDOM_STARTS = 4  # searches beside the one from the given weights

Words = Sequence[str]
Error = Callable[[np.ndarray], float]


@dataclasses.dataclass(frozen=True)
class Measure:
    """What is made small: a function of statistics, which are summed over the alternatives that are put first.

    Attributes:
        name: How it is printed.
        statistics: Returns the statistics of an alternative and its reference, as many numbers for each.
        error: Returns the error of such a sum.
    """

    name: str
    statistics: Callable[[Words, Words], Sequence[float]]
    error: Error


def edit_statistics(words: Words, reference: Words) -> tuple[int, int]:
    """Returns the least number of insertions, deletions and substitutions, and the length of the reference."""
    return edit_distance(words, reference), len(reference)


def bleu_statistics(words: Words, reference: Words) -> list[int]:
    """Returns both lengths, then for each n the number of n-grams that the reference has too, and of all n-grams."""
    statistics = [len(words), len(reference)]
    for n in range(1, MAX_ORDER + 1):
        ngrams, others = (collections.Counter(zip(*(text[i:] for i in range(n)))) for text in (words, reference))
        statistics += [(ngrams & others).total(), ngrams.total()]
    return statistics


def word_error_rate(statistics_S: np.ndarray) -> float:
    """Returns edits over the words of the references; infinity for edits without such words."""
    edits, words = statistics_S[:2].tolist()
    return edits / words if words else math.inf if edits else 0.0


def bleu_error(statistics_S: np.ndarray) -> float:
    """Returns 1 - BLEU, of all texts together and with one reference each (Papineni et al., 2002)."""
    length, reference_length, *counts = statistics_S.tolist()
    if not all(counts):
        return 1.0
    log_precision = sum(math.log(counts[i] / counts[i + 1]) for i in range(0, len(counts), 2)) / MAX_ORDER
    return 1 - math.exp(log_precision + min(0.0, 1 - reference_length / length))


MEASURES = {
    'wer': Measure('word error rate', edit_statistics, word_error_rate),
    'bleu': Measure('1 - BLEU', bleu_statistics, bleu_error),
}


def finite(log_p_A: Sequence[float] | np.ndarray) -> np.ndarray:
    """Returns log P of alternatives, for those with probability zero a finite number below that of all others."""
    log_p_A = np.asarray(log_p_A, np.float64)
    is_possible_A = log_p_A > _IMPOSSIBLE
    return np.where(is_possible_A, log_p_A, log_p_A.min(initial=0, where=is_possible_A) - _PENALTY)


def tune(
    scores_AxF: np.ndarray, lists: Sequence[np.ndarray], statistics_AxS: np.ndarray, error: Error, start_F: np.ndarray
) -> tuple[np.ndarray, float]:
    """Finds weights by searches along single weights.

    Args:
        scores_AxF: The scores of the alternatives.
        lists: The rows of the alternatives of each list.
        statistics_AxS: The statistics of the alternatives.
        error: The error of a sum of statistics.
        start_F: The weights from which the first search starts; the others start from random ones.

    Returns:
        The best weights, whose absolute values sum to one, and their error; those of `start_F` if none are better.
    """
    std_F = scores_AxF.std(axis=0)
    scale_F = np.where(std_F > 0, std_F, 1)  # steps of one size for all scores
    scaled_AxF = scores_AxF / scale_F[None, :]
    random_RxF = np.random.default_rng(0).normal(size=(_RANDOM_STARTS, len(start_F))) * (std_F > 0)
    starts = [start_F * scale_F, *random_RxF]
    best_F, best = starts[0].copy(), first_error(scaled_AxF @ starts[0], lists, statistics_AxS, error)
    for weights_F in starts:
        current = first_error(scaled_AxF @ weights_F, lists, statistics_AxS, error)
        improved = True
        while improved:
            improved = False
            for f in range(len(weights_F)):
                others_A = scaled_AxF @ np.where(np.arange(len(weights_F)) == f, 0, weights_F)
                weight, line_error = search_line(others_A, scaled_AxF[:, f], lists, statistics_AxS, error)
                if line_error < current - _MIN_GAIN:
                    weights_F[f], current, improved = weight, line_error, True
        if current < best - _MIN_GAIN:
            best_F, best = weights_F.copy(), current
    weights_F = best_F / scale_F
    return weights_F / np.abs(weights_F).sum(), best


def first_error(totals_A: np.ndarray, lists: Sequence[np.ndarray], statistics_AxS: np.ndarray, error: Error) -> float:
    """Returns the error of the alternatives with the largest totals, the earlier one of two equal ones."""
    return error(statistics_AxS[[rows[np.argmax(totals_A[rows])] for rows in lists]].sum(axis=0))


def search_line(
    offsets_A: np.ndarray, slopes_A: np.ndarray, lists: Sequence[np.ndarray], statistics_AxS: np.ndarray, error: Error
) -> tuple[float, float]:
    """Finds the best t for the totals offset + t * slope.

    Returns:
        The middle of the widest interval of t with the smallest error, and that error. An interval without an end
        counts as `MAX_STEP` wide.
    """
    sums_S = np.zeros(statistics_AxS.shape[1])
    crossings, statistics_changes = [], []
    for rows in lists:
        envelope = upper_envelope(offsets_A[rows], slopes_A[rows])
        sums_S += statistics_AxS[rows[envelope[0][1]]]
        for (_, before), (t, after) in zip(envelope, envelope[1:]):
            crossings.append(t)
            statistics_changes.append(statistics_AxS[rows[after]] - statistics_AxS[rows[before]])
    order = np.argsort(crossings, kind='stable')
    t_I = np.array(crossings)[order]
    changes_IxS = np.array(statistics_changes).reshape(len(statistics_changes), len(sums_S))[order]
    sums_IxS = np.concatenate([sums_S[None, :], sums_S[None, :] + np.cumsum(changes_IxS, axis=0)])
    ends = [t_I[0] - MAX_STEP, *t_I, t_I[-1] + MAX_STEP] if len(t_I) else [0.0, 0.0]
    widths_I = np.diff(ends)
    is_reached_I = (widths_I > 0) | (len(t_I) == 0)
    errors_I = np.array([error(row) if reached else math.inf for row, reached in zip(sums_IxS, is_reached_I)])
    best = max(np.flatnonzero(errors_I <= errors_I.min() + _MIN_GAIN), key=lambda i: widths_I[i])
    return float(ends[best] + ends[best + 1]) / 2, float(errors_I[best])


def upper_envelope(offsets_K: np.ndarray, slopes_K: np.ndarray) -> list[tuple[float, int]]:
    """Returns the lines that are the highest for some t, by rising t: (the t from which on it is, its index)."""
    envelope: list[tuple[float, int]] = []
    for i in np.lexsort((-np.arange(len(offsets_K)), offsets_K, slopes_K)).tolist():
        start = -math.inf
        while envelope:
            begin, top = envelope[-1]
            if slopes_K[i] > slopes_K[top]:
                start = float((offsets_K[top] - offsets_K[i]) / (slopes_K[i] - slopes_K[top]))
                if start > begin:
                    break
            envelope.pop()
            start = -math.inf
        envelope.append((start, i))
    return envelope
