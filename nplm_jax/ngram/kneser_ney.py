"""Kneser-Ney smoothing in two forms: the back-off form of the paper's baseline, and the modified interpolated form.

Both forms subtract a discount from every count and give the freed mass to the lower order. They estimate the lower
orders from the number of distinct words that precede each n-gram, not from the count of the n-gram.
"""

import fractions
import warnings
from collections.abc import Callable, Sequence

import numpy as np

from nplm_jax.data.mapped_arrays import release
from nplm_jax.ngram import entropy_pruning, pruning
from nplm_jax.ngram.backoff import BackoffModel
from nplm_jax.ngram.counts import Block, NgramCounts
from nplm_jax.ngram.scratch import BLOCK, blocks
from nplm_jax.utils.progress import progress_bar

FALLBACK_BACKOFF = [0.5, 0.5, 0.5]  # the discounts for counts of 1, 2, and 3 or more, if they cannot be estimated
FALLBACK_MODIFIED = [0.5, 1.0, 1.5]


class DiscountWarning(UserWarning):
    """A warning that a fixed discount is used, because the text is too small or too regular to estimate a discount."""


def fit_backoff(counts: NgramCounts, min_count: int = 2, prune_entropy: float = 0.0) -> BackoffModel:
    """Estimates a back-off Kneser-Ney model of any order (the paper's section 4.1).

    P(w | h) = (c(h w) - D) / c(h) for n-grams seen in training, else b(h) P(w | shorter h). D = n1 / (n1 + 2 n2)
    for each order, where n_j is the number of n-grams with (adjusted) count j. At order 1 the discounted mass is spread
    evenly over all |V| words. Contexts followed by all |V| words are not discounted. In a text that is read line by
    line, `<text>` never occurs and is not one of these words.

    Deviation: the paper does not mention min_count. A value of 2 is the default of SRILM, the toolkit used in the
        paper. As in the paper, n = 5 is then less than 1% better than n = 3 on Brown. With min_count=1, the perplexity
        rises with n. The reason is that D is nearly 1, so a word seen only once after a context is less probable after
        this context than after the shorter context.

    Args:
        counts: The n-grams of the training words.
        min_count: The smallest (adjusted) count of n-grams of order 3 and above. The model drops rarer n-grams and
            backs off for them. A value of 1 gives the method as published.
        prune_entropy: The maximum relative increase in perplexity from dropping an n-gram; 0 keeps all n-grams. See
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
    """Estimates a modified interpolated Kneser-Ney model of any order, in back-off form.

    P(w | h) = (c(h w) - D(c(h w))) / c(h) + b(h) P(w | shorter h). Each order has separate discounts for counts j of 1,
    2, and 3 or more: D_j = j - (j + 1) Y n_{j+1} / n_j, where Y = n1 / (n1 + 2 n2) and n_j is the number of n-grams
    with (adjusted) count j. Order 1 is interpolated with 1 / |V|, so every word has a positive probability. If n-grams
    do not cross lines, the probabilities are the same as those of KenLM's lmplz.

    Args:
        counts: The n-grams of the training words.
        thresholds: The count threshold of each order. N-grams whose count does not exceed the threshold are dropped. As
            in lmplz, the discounts are first estimated from all n-grams; dropped n-grams then lose all their mass. If
            empty, all n-grams are kept.
        prune_entropy: The maximum relative increase in perplexity from dropping an n-gram, after `thresholds` have been
            applied; 0 keeps all n-grams. See `entropy_pruning.prune`.

    Raises:
        BadInput: An order loses all its n-grams.

    Warns:
        DiscountWarning: The discounts cannot be estimated and are 0.5, 1 and 1.5.

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
    """Applies entropy pruning to a model.

    Args:
        model: The model.
        counts: The counts from which the model was estimated.
        is_kept: For each order, whether each n-gram of `counts` is in the model. This list is empty if all are.
        threshold: See `entropy_pruning.prune`.
    """
    context_p = context_probabilities(counts)
    if is_kept:
        context_p = [p[kept] for p, kept in zip(context_p, is_kept)]
    return entropy_pruning.prune(model, context_p, threshold, counts.scratch)


def context_probabilities(counts: NgramCounts) -> list[np.ndarray]:
    """Computes P(h) for the contexts of orders 2 and above, for entropy pruning.

    P(h) is the discounted relative frequency of h in training. SRILM uses the product of the model's probabilities, but
    the lower orders of Kneser-Ney do not estimate frequencies (Chelba et al., 2010). The relative frequency without a
    discount is too high for contexts that occur once. `experiments/beyond/pruning` compares the three estimates.
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
    """Estimates orders 2 and above, block by block.

    Args:
        counts: The n-grams.
        unigrams_V: P(w) of each word.
        estimate_block: A function that returns p of the n-grams in a block and b of their contexts. Its arguments are
            the block, the order, and p of each n-gram without its first word.
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
    """Returns the counts of the highest order, and, for lower orders, the number of distinct words before each n-gram.

    N-grams that begin with the mark before a line keep their counts, as in KenLM and SRILM. They predict the beginnings
    of lines that are scored separately. Their adjusted counts would be too low, because only a few distinct words
    precede the mark in a stream.
    """
    begin = counts.table.beginning_with(counts.marks.line) if counts.marks else []
    scratch, dtype = counts.scratch, counts.counts[0].dtype.type
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
    """Estimates the discounts for counts of 0, 1, 2, and 3 or more, for every order.

    If an estimate fails, the function issues a warning and uses fixed discounts.

    Args:
        adjusted: The adjusted counts of every order.
        is_modified: True for the three discounts of Chen & Goodman, False for the single discount of Kneser & Ney.
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
        message = f'the text is too short to estimate the Kneser-Ney discounts of {orders}; using {fixed}'
        warnings.warn(message, DiscountWarning, stacklevel=3)
    return discounts


def _estimate(adjusted: np.ndarray, is_modified: bool) -> list[float] | None:
    """Returns one order's discounts for counts of 1, 2, and 3 or more, or None if they cannot be estimated."""
    parts = [np.bincount(np.minimum(adjusted[block], 5), minlength=6) for block in blocks(len(adjusted), BLOCK)]
    # Orders without n-grams have no blocks.
    n1, n2, n3, n4 = np.sum([np.zeros(6, np.int64), *parts], axis=0)[1:5].tolist()
    if not (n1 and n2 and (n3 or not is_modified)):
        return None
    y = fractions.Fraction(n1, n1 + 2 * n2)
    estimated = [y, y, y]
    if is_modified:
        # Fractions are exact, so rounding cannot turn a valid discount of 0 into a negative one.
        estimated = [1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
    return list(map(float, estimated)) if min(estimated) >= 0 else None


def _apply_discounts(
    block: Block, adjusted: np.ndarray, discounts: np.ndarray, is_lost: np.ndarray | np.bool = np.False_
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Discounts the counts of a block.

    Args:
        block: The n-grams.
        adjusted: The adjusted count of each n-gram.
        discounts: The discounts for counts of 0, 1, 2, and 3 or more.
        is_lost: Whether each n-gram loses its entire count.

    Returns:
        Three arrays: the discounted relative frequency of each n-gram; the probability mass freed in each context,
        which is 1 for a context that occurs only before the span; and the total adjusted count of each context.
    """
    subtracted = np.where(is_lost, adjusted, discounts[np.minimum(adjusted, 3)])
    total = block.sum_by_context(adjusted)
    freed = block.sum_by_context(subtracted)
    share = np.divide(freed, total, out=np.ones_like(total), where=total > 0)
    return (adjusted - subtracted) / np.maximum(total, 1)[block.prefixes], share, total


def _unigrams(counts: NgramCounts, adjusted: np.ndarray, discounts: np.ndarray) -> np.ndarray:
    """Returns P(w). The freed mass is spread evenly over all |V| words, except for a mark that never occurs."""
    (block,) = counts.table.blocks(1, counts.table.vocabulary_size)
    kept, freed, _ = _apply_discounts(block, adjusted, discounts)
    occurs = np.ones(len(kept), bool)
    if counts.marks and counts.marks.text is not None:
        occurs[counts.marks.text] = False
    return kept + occurs * freed / occurs.sum()
