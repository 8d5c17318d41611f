"""Entropy pruning of back-off models, which removes n-grams that are predicted nearly as well by backing off.

Removing an n-gram h w changes P(w | h), and the back-off weight of h changes from b to b'. The relative entropy between
the original and the pruned model is

D = -P(h) (p(h w) (log P(w | h') + log b'(h) - log p(h w)) + (log b'(h) - log b(h)) (1 - sum of p(h v))),

where h' is h without its oldest word and v ranges over the words after h. exp(D) - 1 is the relative change in
perplexity.

References:
    Stolcke, 1998: Entropy-based pruning of backoff language models.
    Chelba, Brants, Neveitt & Xu, 2010: Study on interaction between entropy pruning and Kneser-Ney smoothing.
"""

from collections.abc import Sequence

import numpy as np

from nplm_jax.data.mapped_arrays import release
from nplm_jax.ngram import pruning
from nplm_jax.ngram.backoff import BackoffModel, Values
from nplm_jax.ngram.counts import Block
from nplm_jax.ngram.normalization import leftover_mass, normalize, require_sums_of_one, suffix_log_p, suffix_nodes
from nplm_jax.ngram.scratch import SCRATCH, Scratch
from nplm_jax.utils.errors import require


def prune(
    model: BackoffModel,
    context_p: Sequence[np.ndarray],
    threshold: float,
    scratch: Scratch = SCRATCH,
    key: str = 'model.prune_entropy',
) -> BackoffModel:
    """Removes the n-grams whose removal increases the perplexity by less than a threshold.

    Each n-gram is evaluated as if it were the only one removed. Higher orders are pruned first. An n-gram is kept if it
    is a prefix or suffix of a longer kept n-gram. The sum of the probabilities after a context remains one, up to the
    rounding of numbers in a file.

    Args:
        model: A model whose probabilities sum to one.
        context_p: context_p[k-2] holds P(h) for each context of an n-gram of order k, one value per node of order k-1.
        threshold: The relative change in perplexity, as in SRILM's `ngram -prune`.
        scratch: The allocator of large arrays.
        key: The name of the threshold in error messages.

    Raises:
        BadInput: An order would lose all its n-grams, or the probabilities do not sum to one.
    """
    table = model.table
    suffixes = [np.zeros(table.vocabulary_size, np.int64)]
    for k in range(2, model.n + 1):
        suffixes.append(suffix_nodes(table, k, suffixes[-1], scratch))
    excesses: list[np.ndarray] = []  # the excess over one of the probabilities after each context, highest order first
    is_kept = [np.ones(table.size(1), bool), *(np.zeros(table.size(k), bool) for k in range(2, model.n + 1))]
    for k in range(model.n, 1, -1):
        writer = scratch.writer(np.float64)
        for block in table.blocks(k, scratch.block):
            lower = suffix_log_p(model, k, block.nodes, suffixes[k - 1][block.nodes])
            b, unseen = np.exp(model.log_b[k - 2][block.contexts]), 1 - block.sum_by_context(np.exp(lower))
            excess = b * unseen - leftover_mass(block, model.log_p[k - 1])
            require_sums_of_one(excess, key, threshold)
            change = _changes(block, model.log_p[k - 1], model.log_b[k - 2], lower, context_p[k - 2])
            is_kept[k - 1][block.nodes] |= ~(change < np.log1p(threshold))
            kept = is_kept[k - 1][block.nodes]
            is_context = block.sum_by_context(kept) > 0
            writer.append(np.where(is_context, excess, 0))  # contexts without n-grams get a back-off weight of one
            is_kept[k - 2][block.contexts] |= is_context
            nodes = suffixes[k - 1][block.nodes][kept]
            is_kept[k - 2][nodes[nodes >= 0]] = True
        excesses.append(writer.finish())
        release(table.keys[k - 1], model.log_p[k - 1], suffixes[k - 1])
        problem = f'must be smaller, because this value removes all n-grams of order {k}'
        require(bool(is_kept[k - 1].any()) or not table.size(k), key, threshold, problem)
    smaller = pruning.drop(model, is_kept, scratch)
    excesses = [excess[kept] for excess, kept in zip(excesses[::-1], is_kept)]
    return normalize(smaller.table, smaller.log_p, scratch, excesses)


def context_probabilities(model: BackoffModel, begin: int | None = None, end: int | None = None) -> list[np.ndarray]:
    """Computes P(h) for the contexts of orders 2 and above with the model, as SRILM's `ngram -prune` does.

    Counts give better estimates (`kneser_ney.context_probabilities`).

    Args:
        model: A model.
        begin: The id of `<s>`, or None. The model never predicts `<s>`, so `<s>` is given the probability of `</s>`.
        end: The id of `</s>`, or None.
    """
    p = np.exp(np.asarray(model.log_p[0]))
    if begin is not None and end is not None:
        p[begin] = p[end]
    context_p = [p]
    for k in range(2, model.n):
        context_p.append(context_p[-1][model.table.prefixes(k)] * np.exp(np.asarray(model.log_p[k - 1])))
    return context_p


def _changes(block: Block, log_p: Values, log_b: Values, lower: np.ndarray, context_p: np.ndarray) -> np.ndarray:
    """Returns the relative entropy, in nats, that results from removing each n-gram in a block.

    Args:
        block: The n-grams.
        log_p: log p of the n-grams of this order.
        log_b: log b of the contexts.
        lower: log P of the last word of each n-gram in the block given the shorter context.
        context_p: P(h) of the contexts.
    """
    log_p, p, p_lower = log_p[block.nodes], np.exp(log_p[block.nodes]), np.exp(lower)
    rest = np.maximum(1 - block.sum_by_context(p), 0)[block.prefixes]
    unseen = np.maximum(1 - block.sum_by_context(p_lower), 0)[block.prefixes]
    with np.errstate(divide='ignore', invalid='ignore'):
        new_log_b = np.log(rest + p) - np.log(unseen + p_lower)
        of_word = np.where(p > 0, p * (lower + new_log_b - log_p), 0)
        of_others = np.where(rest > 0, rest * (new_log_b - log_b[block.contexts][block.prefixes]), 0)
    return -context_p[block.contexts][block.prefixes] * (of_word + of_others)
