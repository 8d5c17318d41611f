"""Kneser-Ney smoothing: the back-off form that the paper compares with, and the modified interpolated form.

Both subtract a discount from every count and give the freed mass to the shorter context; both estimate the shorter
contexts from the number of different words that stand before an n-gram, not from how often it occurs.
"""

import warnings
from collections.abc import Callable

import numpy as np

from nplm_jax.data.corpora import Span
from nplm_jax.models.ngram.backoff import BackoffModel
from nplm_jax.models.ngram.counts import NgramCounts, count

FALLBACK_BACKOFF = (0.5, 0.5, 0.5)  # discounts of the counts 1, 2, 3 and more, where they cannot be estimated
FALLBACK_MODIFIED = (0.5, 1.0, 1.5)

Discounts = tuple[float, float, float]


class DiscountWarning(UserWarning):
    """The text is too small or too regular to estimate a discount from it; a fixed discount is used."""


def fit_backoff(tokens_T: np.ndarray, train: Span, n: int, vocabulary_size: int, min_count: int = 2) -> BackoffModel:
    """Estimates a back-off Kneser-Ney model of any order (the paper's section 4.1).

    P(w | h) = (c(h w) - D) / c(h) for n-grams seen in training, else b(h) P(w | shorter h); D = n1 / (n1 + 2 n2)
    for each order, n_j being the number of n-grams of (adjusted) count j. At order 1 the discounted mass is spread
    evenly over all |V| words. After a context that all |V| words follow nothing is discounted.

    Deviation: the paper does not mention min_count. 2 is the default of SRILM, the toolkit that the paper used,
    and gives the paper's picture (no gain from n = 3 to 5). Back-off without it gets worse with n, because D is nearly
    1, and the rest of a count of 1 is less than the shorter context would give.

    Args:
        tokens_T: Ids of the stream.
        train: The words to count.
        n: The order.
        vocabulary_size: |V|.
        min_count: N-grams of order 3 and more with a smaller (adjusted) count are left to the shorter context. 1 is
            the method as published.

    Returns:
        The model.

    Raises:
        BadInput: See `counts.count`.

    Warns:
        DiscountWarning: D cannot be estimated and is 0.5.

    References:
        Kneser & Ney, 1995: Improved backing-off for m-gram language modeling.
    """
    counts = count(tokens_T, train, n, vocabulary_size)
    adjusted = _adjusted_counts(counts)
    discounts = _estimate_discounts(_kneser_ney_discounts, adjusted, FALLBACK_BACKOFF)
    p, b = [_unigrams(counts, adjusted[0], discounts[0])], []
    for k in range(2, n + 1):
        lower = p[-1][counts.suffix_nodes[k - 1]]
        order_min_count = min_count if k > 2 else 1
        kept, freed, total = _apply_discounts(counts, k, adjusted[k - 1], discounts[k - 1], order_min_count)
        is_seen = adjusted[k - 1] >= order_min_count
        followers = counts.sum_by_context(k, is_seen)
        unseen_mass = 1 - counts.sum_by_context(k, lower * is_seen)
        backs_off = (total > 0) & (followers < vocabulary_size)
        b.append(np.divide(freed, unseen_mass, out=np.ones_like(freed), where=backs_off))
        contexts = counts.table.prefixes(k)
        undiscounted = adjusted[k - 1] / np.maximum(total, 1)[contexts]
        kept = np.where((followers == vocabulary_size)[contexts], undiscounted, kept)
        p.append(np.where(is_seen, kept, b[-1][contexts] * lower))
    return BackoffModel(counts.table, _log(p), _log(b))


def fit_modified(tokens_T: np.ndarray, train: Span, n: int, vocabulary_size: int) -> BackoffModel:
    """Estimates a modified interpolated Kneser-Ney model of any order, and writes it in back-off form.

    P(w | h) = (c(h w) - D(c(h w))) / c(h) + b(h) P(w | shorter h), with a discount for each of the counts 1, 2,
    3 and more of each order: D_j = j - (j + 1) Y n_{j+1} / n_j, Y = n1 / (n1 + 2 n2). Order 1 is interpolated
    with 1 / |V|, so every word has a positive probability. The usual toolkits compute the same numbers, except that
    they open and close lines with boundary tokens, where this is one stream.

    Raises:
        BadInput: See `counts.count`.

    Warns:
        DiscountWarning: A discount cannot be estimated; the discounts are 0.5, 1 and 1.5.

    References:
        Chen & Goodman, 1998: An empirical study of smoothing techniques for language modeling.
    """
    counts = count(tokens_T, train, n, vocabulary_size)
    adjusted = _adjusted_counts(counts)
    discounts = _estimate_discounts(_modified_discounts, adjusted, FALLBACK_MODIFIED)
    p, b = [_unigrams(counts, adjusted[0], discounts[0])], []
    for k in range(2, n + 1):
        kept, freed, _ = _apply_discounts(counts, k, adjusted[k - 1], discounts[k - 1])
        b.append(freed)
        p.append(kept + freed[counts.table.prefixes(k)] * p[-1][counts.suffix_nodes[k - 1]])
    return BackoffModel(counts.table, _log(p), _log(b))


def _adjusted_counts(counts: NgramCounts) -> list[np.ndarray]:
    """Returns occurrences at the highest order, and below it the number of different words before each n-gram."""
    lower_orders = [
        np.bincount(counts.suffix_nodes[k][counts.counts[k] > 0], minlength=counts.table.size(k))
        for k in range(1, counts.table.n)
    ]
    return [*lower_orders, counts.counts[-1]]


def _estimate_discounts(
    estimator: Callable[[int, int, int, int], Discounts | None], adjusted: list[np.ndarray], fallback: Discounts
) -> list[np.ndarray]:
    """Returns the discounts of the counts 0, 1, 2, 3+ of every order; warns and uses the fallback without them."""
    discounts, failed_orders = [], []
    for k, c in enumerate(adjusted, start=1):
        estimated = estimator(*np.bincount(np.minimum(c, 5), minlength=6)[1:5])
        if estimated is None:
            failed_orders.append(k)
        discounts.append(np.array([0.0, *(fallback if estimated is None else estimated)]))
    if failed_orders:
        orders = ', '.join(map(str, failed_orders))
        message = f'too little text to estimate the discounts of order {orders}; {fallback} are used'
        warnings.warn(message, DiscountWarning, stacklevel=3)
    return discounts


def _kneser_ney_discounts(n1: int, n2: int, n3: int, n4: int) -> Discounts | None:
    """Returns Kneser & Ney's one discount for the counts 1, 2, 3+; None unless it is between 0 and 1."""
    d = n1 / (n1 + 2 * n2) if n1 and n2 else 0.0
    return (d, d, d) if 0 < d < 1 else None


def _modified_discounts(n1: int, n2: int, n3: int, n4: int) -> Discounts | None:
    """Returns Chen & Goodman's three discounts; None unless all can be computed and are in (0, count]."""
    if not (n1 and n2 and n3):
        return None
    y = n1 / (n1 + 2 * n2)
    d = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return d if all(0 < x <= j for j, x in enumerate(d, start=1)) else None


def _apply_discounts(
    counts: NgramCounts, order: int, adjusted: np.ndarray, discounts: np.ndarray, min_count: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Discounts the counts of one order.

    Args:
        counts: The n-grams.
        order: Their order.
        adjusted: The adjusted count of each n-gram of this order.
        discounts: The discounts of the counts 0, 1, 2, 3+.
        min_count: N-grams with a smaller adjusted count lose all of it.

    Returns:
        The share of its context that each n-gram keeps; the share of each context that is freed, 1 for a context that
        only stands before the span; and the total adjusted count of each context.
    """
    contexts = counts.table.prefixes(order)
    subtracted = np.where(adjusted < min_count, adjusted, discounts[np.minimum(adjusted, 3)])
    total = counts.sum_by_context(order, adjusted)
    freed = counts.sum_by_context(order, subtracted)
    share = np.divide(freed, total, out=np.ones_like(total), where=total > 0)
    return (adjusted - subtracted) / np.maximum(total, 1)[contexts], share, total


def _unigrams(counts: NgramCounts, adjusted: np.ndarray, discounts: np.ndarray) -> np.ndarray:
    """Returns P(w), the freed mass spread evenly over all |V| words."""
    kept, freed, _ = _apply_discounts(counts, 1, adjusted, discounts)
    return kept + freed / counts.table.vocabulary_size


def _log(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Returns the natural logarithm of each array."""
    return [np.log(a) for a in arrays]
