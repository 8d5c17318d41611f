"""Kneser-Ney smoothing: the back-off form of the paper's baseline, and the modified interpolated form.

Both subtract a discount from every count and give the freed mass to the shorter context. Both estimate lower orders
from the number of distinct words that precede an n-gram instead of its count.
"""

import fractions
import warnings
from collections.abc import Callable, Sequence

import numpy as np

from nplm_jax.data.mapped_arrays import release
from nplm_jax.ngram import entropy_pruning, pruning
from nplm_jax.ngram.backoff import BackoffModel
from nplm_jax.ngram.counts import Block, NgramCounts
from nplm_jax.ngram.integers import node_dtype
from nplm_jax.ngram.scratch import BLOCK, blocks
from nplm_jax.utils.progress import progress_bar

FALLBACK_BACKOFF = [0.5, 0.5, 0.5]  # discounts of the counts 1, 2, 3 and more, where they cannot be estimated
FALLBACK_MODIFIED = [0.5, 1.0, 1.5]


class DiscountWarning(UserWarning):
    """The text is too small or too regular to estimate a discount from it; a fixed discount is used."""


def fit_backoff(counts: NgramCounts, min_count: int = 2, prune_entropy: float = 0.0) -> BackoffModel:
    """Estimates a back-off Kneser-Ney model of any order (the paper's section 4.1).

    P(w | h) = (c(h w) - D) / c(h) for n-grams seen in training, else b(h) P(w | shorter h); D = n1 / (n1 + 2 n2)
    for each order, n_j being the number of n-grams of (adjusted) count j. At order 1 the discounted mass is spread
    evenly over all |V| words. After a context that all |V| words follow nothing is discounted; of a text that is read
    line by line these are all but `<text>`, which never occurs.

    Deviation: the paper does not mention min_count. 2 is the default of SRILM, the toolkit that the paper used,
    and gives the paper's picture (no gain from n = 3 to 5). Back-off without it gets worse with n, because D is nearly
    1, and the rest of a count of 1 is less than the shorter context would give.

    Args:
        counts: The n-grams of the training words.
        min_count: N-grams of order 3 and more with a smaller (adjusted) count are left to the shorter context. 1 is
            the method as published.
        prune_entropy: N-grams whose removal raises the perplexity by a smaller share are left out; 0: none is. See
            `entropy_pruning.prune`.

    Returns:
        The model.

    Raises:
        BadInput: An order loses all its n-grams.

    Warns:
        DiscountWarning: D cannot be estimated and is 0.5.

    References:
        Kneser & Ney, 1995: Improved backing-off for m-gram language modeling.
    """
    adjusted = _adjusted_counts(counts)
    discounts = _estimate_discounts(adjusted, is_modified=False)
    has_unused = counts.marks is not None and counts.marks.text is not None
    num_words = counts.table.vocabulary_size - has_unused

    def estimate_block(block: Block, order: int, lower: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        block_adjusted = adjusted[order - 1][block.nodes]
        order_min_count = min_count if order > 2 else 1
        is_seen = block_adjusted >= order_min_count
        kept, freed, total = _apply_discounts(block, block_adjusted, discounts[order - 1], ~is_seen)
        followers = block.sum_by_context(is_seen)
        unseen_mass = 1 - block.sum_by_context(lower * is_seen)
        backs_off = (total > 0) & (followers < num_words)
        b = np.divide(freed, unseen_mass, out=np.ones_like(freed), where=backs_off)
        undiscounted = block_adjusted / np.maximum(total, 1)[block.prefixes]
        kept = np.where((followers == num_words)[block.prefixes], undiscounted, kept)
        return np.where(is_seen, kept, b[block.prefixes] * lower), b

    model = _estimate_orders(counts, _unigrams(counts, adjusted[0], discounts[0]), estimate_block)
    return _prune_entropy(model, counts, [], prune_entropy) if prune_entropy else model


def fit_modified(counts: NgramCounts, thresholds: Sequence[int] = (), prune_entropy: float = 0.0) -> BackoffModel:
    """Estimates a modified interpolated Kneser-Ney model of any order, and writes it in back-off form.

    P(w | h) = (c(h w) - D(c(h w))) / c(h) + b(h) P(w | shorter h), with a discount for each of the counts 1, 2,
    3 and more of each order: D_j = j - (j + 1) Y n_{j+1} / n_j, Y = n1 / (n1 + 2 n2). Order 1 is interpolated
    with 1 / |V|, so every word has a positive probability. With `counts.marks` these are the numbers of KenLM's lmplz.

    Args:
        counts: The n-grams of the training words.
        thresholds: For each order the largest number of occurrences of n-grams that are left out; their counts lose
            all mass, after the discounts have been estimated from all n-grams, as in lmplz. Empty: no n-gram is.
        prune_entropy: N-grams whose removal raises the perplexity by a smaller share are left out; 0: none is. This is
            done after the n-grams of `thresholds` are left out. See `entropy_pruning.prune`.

    Raises:
        BadInput: An order loses all its n-grams.

    Warns:
        DiscountWarning: A discount cannot be estimated; the discounts are 0.5, 1 and 1.5.

    References:
        Chen & Goodman, 1998: An empirical study of smoothing techniques for language modeling.
    """
    adjusted = _adjusted_counts(counts)
    discounts = _estimate_discounts(adjusted, is_modified=True)
    is_kept = pruning.keep_frequent(counts, thresholds) if any(thresholds) else []

    def estimate_block(block: Block, order: int, lower: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        is_pruned = ~is_kept[order - 1][block.nodes] if is_kept else np.False_
        kept, freed, _ = _apply_discounts(block, adjusted[order - 1][block.nodes], discounts[order - 1], is_pruned)
        return kept + freed[block.prefixes] * lower, freed

    model = _estimate_orders(counts, _unigrams(counts, adjusted[0], discounts[0]), estimate_block)
    model = pruning.drop(model, is_kept, counts.scratch) if is_kept else model
    return _prune_entropy(model, counts, is_kept, prune_entropy) if prune_entropy else model


def _prune_entropy(
    model: BackoffModel, counts: NgramCounts, is_kept: Sequence[np.ndarray], threshold: float
) -> BackoffModel:
    """Returns a model without the n-grams that it needs least.

    Args:
        model: The model.
        counts: The counts that it was estimated from.
        is_kept: For each order whether each n-gram of `counts` is in the model; empty if all are.
        threshold: See `entropy_pruning.prune`.
    """
    context_p = context_probabilities(counts)
    if is_kept:
        context_p = [p[kept] for p, kept in zip(context_p, is_kept)]
    return entropy_pruning.prune(model, context_p, threshold, counts.scratch)


def context_probabilities(counts: NgramCounts) -> list[np.ndarray]:
    """Returns P(h) of the contexts of the n-grams of each order from 2 on, for entropy pruning.

    It is the frequency of h in training less a discount. SRILM takes the product of the model's probabilities, but
    Kneser-Ney's lower orders do not estimate frequencies, so that this is P(h) of no text (Chelba et al., 2010). The
    frequency itself is too high for contexts that occur once. `experiments/pruning` compares the three.
    """
    context_p, num_words = [], int(counts.counts[0].sum())
    for k in range(2, counts.table.n + 1):
        writer = counts.scratch.writer(np.int64)
        for part in counts.table.blocks(k, counts.scratch.block):
            writer.append(part.sum_by_context(counts.counts[k - 1][part.nodes]))
        occurrences = writer.finish()
        discounts = np.array([0.0, *(_estimate(occurrences, is_modified=True) or FALLBACK_MODIFIED)])
        context_p.append((occurrences - discounts[np.minimum(occurrences, 3)]) / num_words)
    return context_p


def _estimate_orders(
    counts: NgramCounts,
    unigrams_V: np.ndarray,
    estimate_block: Callable[[Block, int, np.ndarray], tuple[np.ndarray, np.ndarray]],
) -> BackoffModel:
    """Estimates the orders from the second on, block by block.

    Args:
        counts: The n-grams.
        unigrams_V: P(w).
        estimate_block: Returns p of the n-grams of a block and b of its contexts. It takes the block, its order, and
            for each n-gram p of the n-gram without its first word.
    """
    scratch, table = counts.scratch, counts.table
    with np.errstate(divide='ignore'):
        p, log_p, log_b = unigrams_V, [np.log(unigrams_V)], []
    with progress_bar(sum(map(table.size, range(2, table.n + 1))), 'estimating n-grams', ' n-grams') as bar:
        for k in range(2, table.n + 1):
            p_writer, log_p_writer, log_b_writer = (scratch.writer(np.float64) for _ in range(3))
            for block in table.blocks(k, scratch.block):
                block_p, b = estimate_block(block, k, p[counts.suffix_nodes[k - 1][block.nodes]])
                log_p_writer.append(np.log(block_p))
                log_b_writer.append(np.log(b))
                if k < table.n:
                    p_writer.append(block_p)
                bar.update(len(block_p))
            p = p_writer.finish()
            log_p.append(log_p_writer.finish())
            log_b.append(log_b_writer.finish())
            release(table.keys[k - 1], counts.suffix_nodes[k - 1])
    return BackoffModel(table, log_p, log_b)


def _adjusted_counts(counts: NgramCounts) -> list[np.ndarray]:
    """Returns occurrences at the highest order, and below it the number of different words before each n-gram.

    No word stands before an n-gram that begins a line: it has its occurrences.
    """
    begin = counts.table.beginning_with(counts.marks.line) if counts.marks else []
    scratch, dtype = counts.scratch, node_dtype(counts.table.size(counts.table.n))
    adjusted = []
    for k in range(1, counts.table.n):
        lower_order = scratch.zeros(counts.table.size(k), dtype)
        for block in blocks(counts.table.size(k + 1), scratch.block):
            is_counted = counts.counts[k][block] > 0
            np.add.at(lower_order, counts.suffix_nodes[k][block][is_counted].astype(np.int64), dtype(1))
        if begin and k > 1:
            lower_order[begin[k - 1]] = counts.counts[k - 1][begin[k - 1]]
        release(counts.counts[k], counts.suffix_nodes[k], lower_order)
        adjusted.append(lower_order)
    return [*adjusted, counts.counts[-1]]


def _estimate_discounts(adjusted: list[np.ndarray], is_modified: bool) -> list[np.ndarray]:
    """Returns the discounts of the counts 0, 1, 2, 3+ of every order; warns and uses fixed ones without them.

    Args:
        adjusted: The adjusted counts of every order.
        is_modified: Whether they are Chen & Goodman's three discounts, or three times Kneser & Ney's one.
    """
    discounts, failed_orders = [], []
    for k, c in enumerate(adjusted, start=1):
        if (estimated := _estimate(c, is_modified)) is None:
            failed_orders.append(k)
            estimated = FALLBACK_MODIFIED if is_modified else FALLBACK_BACKOFF
        discounts.append(np.array([0.0, *estimated]))
    if failed_orders:
        orders = f'order{"s"[: len(failed_orders) - 1]} {", ".join(map(str, failed_orders))}'
        fixed = 'the fixed discounts 0.5, 1 and 1.5' if is_modified else 'the fixed discount 0.5'
        message = f'too little text to estimate the Kneser-Ney discounts of {orders}: using {fixed}'
        warnings.warn(message, DiscountWarning, stacklevel=3)
    return discounts


def _estimate(adjusted: np.ndarray, is_modified: bool) -> list[float] | None:
    """Returns the discounts of the counts 1, 2, 3+ of one order, or None if the counts do not give them."""
    parts = [np.bincount(np.minimum(adjusted[block], 5), minlength=6) for block in blocks(len(adjusted), BLOCK)]
    # An order without n-grams has no block.
    n1, n2, n3, n4 = np.sum([np.zeros(6, np.int64), *parts], axis=0)[1:5].tolist()
    if not (n1 and n2 and (n3 or not is_modified)):
        return None
    y = fractions.Fraction(n1, n1 + 2 * n2)
    estimated = [y, y, y]
    if is_modified:
        # Exact, because a discount of 0 is used, and one that is below 0 is not.
        estimated = [1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
    return list(map(float, estimated)) if min(estimated) >= 0 else None


def _apply_discounts(
    block: Block, adjusted: np.ndarray, discounts: np.ndarray, is_lost: np.ndarray | np.bool = np.False_
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Discounts the counts of a block.

    Args:
        block: The n-grams.
        adjusted: The adjusted count of each.
        discounts: The discounts of the counts 0, 1, 2, 3+.
        is_lost: Whether each loses all of its count.

    Returns:
        The share of its context that each n-gram keeps; the share of each context that is freed, 1 for a context that
        only stands before the span; and the total adjusted count of each context.
    """
    subtracted = np.where(is_lost, adjusted, discounts[np.minimum(adjusted, 3)])
    total = block.sum_by_context(adjusted)
    freed = block.sum_by_context(subtracted)
    share = np.divide(freed, total, out=np.ones_like(total), where=total > 0)
    return (adjusted - subtracted) / np.maximum(total, 1)[block.prefixes], share, total


def _unigrams(counts: NgramCounts, adjusted: np.ndarray, discounts: np.ndarray) -> np.ndarray:
    """Returns P(w), the freed mass spread evenly over all |V| words; a mark that never occurs gets none."""
    (block,) = counts.table.blocks(1, counts.table.vocabulary_size)
    kept, freed, _ = _apply_discounts(block, adjusted, discounts)
    occurs = np.ones(len(kept), bool)
    if counts.marks and counts.marks.text is not None:
        occurs[counts.marks.text] = False
    return kept + occurs * freed / occurs.sum()
