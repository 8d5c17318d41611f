"""Kneser-Ney smoothing: the back-off form that the paper compares with, and the modified interpolated one.

Both subtract a discount from every count and give what they took to the shorter context; both estimate shorter
contexts not from how often an n-gram occurs but from how many different words stand before it.
"""

from __future__ import annotations

import warnings

import jax
import numpy as np

from nplm_jax.data.corpora import Span
from nplm_jax.models.ngram.backoff import BackoffModel
from nplm_jax.models.ngram.counts import NgramCounts, count

FALLBACK_BACKOFF = (0.5, 0.5, 0.5)  # discounts of the counts 1, 2, 3 and more, where none can be estimated
FALLBACK_MODIFIED = (0.5, 1.0, 1.5)


class DiscountWarning(UserWarning):
    """The text is too small or too regular to estimate a discount from it; a fixed one is used."""


def fit_backoff(
    tokens_T: jax.Array | np.ndarray, train: Span, n: int, vocabulary_size: int, min_count: int = 2
) -> BackoffModel:
    """Back-off Kneser-Ney (Kneser & Ney, 1995; the paper's section 4.1), any n.

    P(w | h) = (c(h w) - D) / c(h) for n-grams seen in training, else b(h) P(w | shorter h); D = n1 / (n1 + 2 n2)
    for each order, n_j being the n-grams of (adjusted) count j. At order 1 the discounted mass is spread
    evenly over all |V| words. After a context that all |V| words followed nothing is discounted.

    Deviation: min_count, of which the paper says nothing. N-grams of order 3 and more with a smaller (adjusted)
    count are left to the shorter context. 2 is the default of SRILM, the toolkit that the paper used, and gives the
    paper's picture (no gain from n = 3 to 5): back-off without it grows worse with n, because D is nearly 1 and what
    is left of a count of 1 is less than the shorter context would give. 1 is the method as published.
    Warns: DiscountWarning where D cannot be estimated; it is 0.5 then. Raises: BadInput as `count` does.
    """
    counts = count(tokens_T, train, n, vocabulary_size)
    adjusted = _adjusted_counts(counts)
    discounts = _estimate(_discount, adjusted, FALLBACK_BACKOFF)
    p, b = [_unigrams(counts, adjusted[0], discounts[0])], []
    for k in range(2, n + 1):
        lower = p[-1][counts.suffixes[k - 1]]
        least = min_count if k > 2 else 1
        kept, freed, total = _discounted(counts, k, adjusted[k - 1], discounts[k - 1], least)
        seen = adjusted[k - 1] >= least
        followers = counts.sum_by_context(k, seen)
        unseen_mass = 1 - counts.sum_by_context(k, lower * seen)
        ok = (total > 0) & (followers < vocabulary_size)
        b.append(np.divide(freed, unseen_mass, out=np.ones_like(freed), where=ok))
        contexts = counts.table.prefixes(k)
        undiscounted = adjusted[k - 1] / np.maximum(total, 1)[contexts]
        kept = np.where((followers == vocabulary_size)[contexts], undiscounted, kept)
        p.append(np.where(seen, kept, b[-1][contexts] * lower))
    return BackoffModel(counts.table, _log(p), _log(b))


def fit_modified(tokens_T: jax.Array | np.ndarray, train: Span, n: int, vocabulary_size: int) -> BackoffModel:
    """Modified interpolated Kneser-Ney (Chen & Goodman, 1998), any n; written in back-off form.

    P(w | h) = (c(h w) - D(c(h w))) / c(h) + b(h) P(w | shorter h), with a discount for each of the counts 1, 2,
    3 and more of each order: D_j = j - (j + 1) Y n_{j+1} / n_j, Y = n1 / (n1 + 2 n2). Order 1 is interpolated
    with 1 / |V|, so every word has probability. The usual toolkits compute the same, but for lines that open
    and close with marks, where this is one stream.
    Warns: DiscountWarning where a discount cannot be estimated; (0.5, 1, 1.5) then. Raises: as `count` does.
    """
    counts = count(tokens_T, train, n, vocabulary_size)
    adjusted = _adjusted_counts(counts)
    discounts = _estimate(_modified_discounts, adjusted, FALLBACK_MODIFIED)
    p, b = [_unigrams(counts, adjusted[0], discounts[0])], []
    for k in range(2, n + 1):
        kept, freed, _ = _discounted(counts, k, adjusted[k - 1], discounts[k - 1])
        b.append(freed)
        p.append(kept + freed[counts.table.prefixes(k)] * p[-1][counts.suffixes[k - 1]])
    return BackoffModel(counts.table, _log(p), _log(b))


def _adjusted_counts(counts: NgramCounts) -> list[np.ndarray]:
    """Occurrences at the highest order; below it, how many different words stand before each n-gram."""
    below = [
        np.bincount(counts.suffixes[k][counts.counts[k] > 0], minlength=counts.table.size(k))
        for k in range(1, counts.table.n)
    ]
    return [*below, counts.counts[-1]]


def _estimate(estimator, adjusted: list[np.ndarray], fallback: tuple[float, ...]) -> list[np.ndarray]:
    """The discounts of the counts 0, 1, 2, 3+ of every order; a fallback, with a warning, where there are none."""
    discounts, failed = [], []
    for k, c in enumerate(adjusted, start=1):
        estimated = estimator(*np.bincount(np.minimum(c, 5), minlength=6)[1:5])
        if estimated is None:
            failed.append(k)
        discounts.append(np.array([0.0, *(fallback if estimated is None else estimated)]))
    if failed:
        orders = ', '.join(map(str, failed))
        message = f'too little text to estimate the discounts of order {orders}; {fallback} are used'
        warnings.warn(message, DiscountWarning, stacklevel=3)
    return discounts


def _discount(n1: int, n2: int, n3: int, n4: int) -> tuple[float, float, float] | None:
    """The one discount of Kneser & Ney for counts 1, 2, 3+; None where it would not be between 0 and 1."""
    d = n1 / (n1 + 2 * n2) if n1 and n2 else 0.0
    return (d, d, d) if 0 < d < 1 else None


def _modified_discounts(n1: int, n2: int, n3: int, n4: int) -> tuple[float, float, float] | None:
    """The three discounts of Chen & Goodman; None where one cannot be computed or is not in (0, count]."""
    if not (n1 and n2 and n3):
        return None
    y = n1 / (n1 + 2 * n2)
    d = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return d if all(0 < x <= j for j, x in enumerate(d, start=1)) else None


def _discounted(
    counts: NgramCounts, order: int, adjusted: np.ndarray, discounts: np.ndarray, least: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each n-gram the share of its context that it keeps; of each context the share freed, and its total.

    An n-gram whose count is below `least` keeps nothing. A context that only stands before the span has total 0:
    all its mass is free.
    """
    contexts = counts.table.prefixes(order)
    taken = np.where(adjusted < least, adjusted, discounts[np.minimum(adjusted, 3)])
    total = counts.sum_by_context(order, adjusted)
    freed = counts.sum_by_context(order, taken)
    share = np.divide(freed, total, out=np.ones_like(total), where=total > 0)
    return (adjusted - taken) / np.maximum(total, 1)[contexts], share, total


def _unigrams(counts: NgramCounts, adjusted: np.ndarray, discounts: np.ndarray) -> np.ndarray:
    kept, freed, _ = _discounted(counts, 1, adjusted, discounts)
    return kept + freed / counts.table.vocabulary_size


def _log(arrays: list[np.ndarray]) -> list[np.ndarray]:
    return [np.log(a) for a in arrays]
