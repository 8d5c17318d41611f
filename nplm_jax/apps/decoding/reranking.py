"""Minimum error rate training: tunes the weights of n-best scores to minimize word errors (Och, 2003).

The total of an alternative is the weighted sum of its scores, which is linear in each weight. As one weight varies, the
best alternative of a list changes only where two lines of the upper envelope intersect. The number of errors is
therefore known exactly for all values of the weight. The search optimizes one weight after another until changing any
single weight no longer reduces the errors. It starts from several points, because each search may end in a local
optimum.

Dims: A alternatives in all lists, K alternatives in one list, F scores per alternative, I intervals of a weight, R
random starts.

References:
    Och, Minimum error rate training in statistical machine translation, ACL 2003.
"""

import math
from collections.abc import Sequence

import numpy as np

from nplm_jax.utils.errors import BadInput, require

MAX_STEP = 10.0  # width of the outermost intervals, in units of the weights
_IMPOSSIBLE = -1e20  # a lower log P means probability zero, which is -inf, or -1e30 in a search
_PENALTY = 100.0  # how far the log P that replaces probability zero is below the smallest finite log P
_RANDOM_STARTS = 4  # number of searches in addition to the search from the given weights


def word_edits(words: Sequence[str], reference: Sequence[str]) -> int:
    """Returns the word-level edit distance. Raises BadInput if a text is a string, or if rapidfuzz is not installed."""
    for key, given in (('words', words), ('reference', reference)):  # the letters of a string would count as words
        require(not isinstance(given, str), key, given, 'must be a list of words; split the string')
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError:
        raise BadInput('rapidfuzz', 'is not installed; install it with: pip install "nplm-jax[decode]"') from None
    return Levenshtein.distance(words, reference)


def finite(log_p_A: Sequence[float] | np.ndarray) -> np.ndarray:
    """Replaces the log P of each alternative with probability zero by a finite number that is lower than all others."""
    log_p_A = np.asarray(log_p_A, np.float64)
    is_possible_A = log_p_A > _IMPOSSIBLE
    return np.where(is_possible_A, log_p_A, log_p_A.min(initial=0, where=is_possible_A) - _PENALTY)


def tune(
    scores_AxF: np.ndarray, lists: Sequence[np.ndarray], edits_A: np.ndarray, start_F: np.ndarray
) -> tuple[np.ndarray, int]:
    """Tunes weights by coordinate-wise line searches.

    Args:
        scores_AxF: The scores of each alternative.
        lists: The rows of the alternatives in each list.
        edits_A: The word edits of the alternatives.
        start_F: The initial weights of the first search. The other searches start from random weights.

    Returns:
        The best weights, scaled so that their absolute values sum to one, and the total edits of the best alternatives.
        If the search finds nothing better, the result is `start_F` and its edits.
    """
    std_F = scores_AxF.std(axis=0)
    scale_F = np.where(std_F > 0, std_F, 1)  # dividing by the scale gives all scores unit variance
    scaled_AxF = scores_AxF / scale_F[None, :]
    random_RxF = np.random.default_rng(0).normal(size=(_RANDOM_STARTS, len(start_F))) * (std_F > 0)
    starts = [start_F * scale_F, *random_RxF]
    best_F, best = starts[0].copy(), first_edits(scaled_AxF @ starts[0], lists, edits_A)
    for weights_F in starts:
        current = first_edits(scaled_AxF @ weights_F, lists, edits_A)
        improved = True
        while improved:
            improved = False
            for f in range(len(weights_F)):
                others_A = scaled_AxF @ np.where(np.arange(len(weights_F)) == f, 0, weights_F)
                weight, edits = search_line(others_A, scaled_AxF[:, f], lists, edits_A)
                if edits < current:
                    weights_F[f], current, improved = weight, edits, True
        if current < best:
            best_F, best = weights_F.copy(), current
    weights_F = best_F / scale_F
    return weights_F / np.abs(weights_F).sum(), best


def first_edits(totals_A: np.ndarray, lists: Sequence[np.ndarray], edits_A: np.ndarray) -> int:
    """Returns the summed edits of the alternatives with the largest totals. Of equal totals, the first counts."""
    return int(sum(edits_A[rows[np.argmax(totals_A[rows])]] for rows in lists))


def search_line(
    offsets_A: np.ndarray, slopes_A: np.ndarray, lists: Sequence[np.ndarray], edits_A: np.ndarray
) -> tuple[float, int]:
    """Finds the t that minimizes the edits of the best alternatives, whose totals are offset + t * slope.

    Args:
        offsets_A: The totals at t = 0.
        slopes_A: The slopes of the totals.
        lists: The rows of the alternatives in each list.
        edits_A: The word edits of the alternatives.

    Returns:
        The centre of the widest interval of t with the fewest edits, and the edits. Unbounded intervals count as
        `MAX_STEP` wide.
    """
    first = 0
    crossings, changes = [], []
    for rows in lists:
        envelope = upper_envelope(offsets_A[rows], slopes_A[rows])
        first += int(edits_A[rows[envelope[0][1]]])
        for (_, before), (t, after) in zip(envelope, envelope[1:]):
            crossings.append(t)
            changes.append(edits_A[rows[after]] - edits_A[rows[before]])
    order = np.argsort(crossings, kind='stable')
    t_I = np.array(crossings)[order]
    edits_I = first + np.cumsum([0, *np.array(changes, np.int64)[order]])
    ends = [t_I[0] - MAX_STEP, *t_I, t_I[-1] + MAX_STEP] if len(t_I) else [0.0, 0.0]
    widths_I = np.diff(ends)
    is_reached_I = (widths_I > 0) | (len(t_I) == 0)
    best = max(np.flatnonzero(edits_I == edits_I[is_reached_I].min()), key=lambda i: widths_I[i])
    return float(ends[best] + ends[best + 1]) / 2, int(edits_I[best])


def upper_envelope(offsets_K: np.ndarray, slopes_K: np.ndarray) -> list[tuple[float, int]]:
    """Returns the upper envelope of the lines offset + t * slope.

    Each segment of the envelope is a pair: the t at which the segment starts, and the index of its line. Segments are
    sorted by t.
    """
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
