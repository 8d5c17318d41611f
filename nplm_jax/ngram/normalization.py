"""Normalizes back-off models with given n-gram probabilities.

The back-off weight of a context h is b(h) = (1 - sum of p(h w)) / (1 - sum of P(w | h without its oldest word)). The
sums are over the words w that follow h in the table. For p and P, see `nplm_jax.ngram.backoff`.
"""

from collections.abc import Sequence

import numpy as np

from nplm_jax.data.mapped_arrays import release
from nplm_jax.ngram.backoff import BackoffModel, Values
from nplm_jax.ngram.counts import Block, NgramTable, find
from nplm_jax.ngram.integers import node_dtype
from nplm_jax.ngram.scratch import Scratch, blocks
from nplm_jax.utils.errors import require

_ROUNDING = 1e-12  # rounding error of a sum of float64 probabilities
_TOLERANCE = 1e-3  # accepted error of a sum of probabilities from a file with few digits


def normalize(
    table: NgramTable, log_p: Sequence[Values], scratch: Scratch, excesses: Sequence[np.ndarray] = ()
) -> BackoffModel:
    """Computes back-off weights so that the probabilities sum to one after every context.

    Args:
        table: The n-grams.
        log_p: log p of the n-grams of each order, nats; the sum of p after a context is at most one.
        scratch: The allocator of the arrays.
        excesses: For orders 2 and above, the amount by which the sum of all probabilities after each context exceeds
            one; 0 by default. This amount is added to the mass for words that do not follow the context, which rounded
            probabilities in a file may otherwise reduce to zero.

    Returns:
        The model.
    """
    model, suffixes = BackoffModel(table, [log_p[0]], []), np.zeros(table.vocabulary_size, np.int64)
    for k in range(2, len(log_p) + 1):
        suffixes, writer = suffix_nodes(table, k, suffixes, scratch), scratch.writer(np.float64)
        for block in table.blocks(k, scratch.block):
            unseen = 1 - block.sum_by_context(np.exp(suffix_log_p(model, k, block.nodes, suffixes[block.nodes])))
            excess = excesses[k - 2][block.contexts] if excesses else 0
            writer.append(log_backoff(leftover_mass(block, log_p[k - 1]) + excess, unseen))
        model = BackoffModel(table, [*model.log_p, log_p[k - 1]], [*model.log_b, writer.finish()])
        release(table.keys[k - 1], suffixes, *log_p[k - 2 : k])
    return model


def log_backoff(leftover: np.ndarray, unseen: np.ndarray) -> np.ndarray:
    """Returns log b of contexts, or -inf (up to rounding) if all words follow a context.

    Args:
        leftover: The probability mass that each context leaves to words that do not follow it.
        unseen: The probability of these words after the shorter context.
    """
    b = np.divide(leftover, unseen, out=np.zeros_like(leftover), where=(leftover > _ROUNDING) & (unseen > _ROUNDING))
    with np.errstate(divide='ignore'):
        return np.log(b)


def require_sums_of_one(excess: np.ndarray, key: str, value: object) -> None:
    """Raises BadInput with the key and value unless each excess over one is as small as rounding in a file."""
    problem = 'requires probabilities that sum to one, unlike those of a model with a limited vocabulary'
    require(bool((np.abs(excess) < _TOLERANCE).all()), key, value, problem)


def leftover_mass(block: Block, log_p: Values) -> np.ndarray:
    """Returns the probability mass that each context of a block leaves to words that do not follow it."""
    return 1 - block.sum_by_context(np.exp(log_p[block.nodes]))


def suffix_nodes(table: NgramTable, order: int, lower: np.ndarray, scratch: Scratch) -> np.ndarray:
    """Returns the suffix node (the node without the first word) of each n-gram of an order, or -1.

    Args:
        table: The n-grams.
        order: The order of the n-grams.
        lower: The suffix nodes of the order below.
        scratch: The allocator of the arrays.
    """
    writer = scratch.writer(node_dtype(table.size(order - 1)))
    for block in blocks(table.size(order), scratch.block):
        writer.append(find_suffixes(table, order, table.keys[order - 1][block], lower))
    return writer.finish()


def find_suffixes(table: NgramTable, order: int, keys: np.ndarray, lower: np.ndarray) -> np.ndarray:
    """Returns the int64 suffix nodes of n-grams given by their keys. See `suffix_nodes`."""
    contexts, words = np.divmod(keys, table.vocabulary_size)
    return find(table.keys[order - 2], lower[contexts].astype(np.int64) * table.vocabulary_size + words)


def suffix_log_p(model: BackoffModel, order: int, nodes: slice, suffixes: np.ndarray) -> np.ndarray:
    """Returns the float64 log P of the last word of n-grams given their contexts without the first word.

    Args:
        model: A model with at least the order below.
        order: The order of the n-grams.
        nodes: The n-grams.
        suffixes: The suffix node of each n-gram, or -1.
    """
    log_p = model.log_p[order - 2][suffixes]
    missing = np.flatnonzero(suffixes < 0)
    if len(missing):
        log_p[missing] = log_p_of_words(model, ngram_words(model.table, order, nodes.start + missing)[:, 1:])
    return log_p


def log_p_of_words(model: BackoffModel, words_BxK: np.ndarray) -> np.ndarray:
    """Returns the float64 log P of the last word of each row given the words before it. K must be at least 2."""
    nodes = model.table.nodes(words_BxK, min(model.n, words_BxK.shape[1]))
    return model.log_p_of([x[:, -1] for x in nodes], [x[:, -2] for x in nodes])


def ngram_words(table: NgramTable, order: int, nodes_B: np.ndarray) -> np.ndarray:
    """Returns the int64 words of the given n-grams, B x K."""
    words = []
    for keys in table.keys[order - 1 :: -1]:
        nodes_B, words_B = np.divmod(keys[nodes_B], table.vocabulary_size)
        words.append(words_B)
    return np.stack(words[::-1], axis=1)
