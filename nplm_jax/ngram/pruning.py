"""Prunes back-off models by count thresholds, and removes arbitrary n-grams."""

from collections.abc import Sequence

import numpy as np

from nplm_jax.data.mapped_arrays import release
from nplm_jax.ngram.backoff import BackoffModel
from nplm_jax.ngram.counts import NgramCounts, NgramTable
from nplm_jax.ngram.scratch import SCRATCH, Scratch
from nplm_jax.utils.errors import require


def parse_thresholds(text: str, n: int) -> tuple[int, ...]:
    """Parses the count thresholds of orders 1..n. N-grams whose count does not exceed the threshold are dropped.

    Args:
        text: The value of `model.prune`: numbers separated by spaces, as in `lmplz --prune`, one for each order,
            starting with order 1. The last number also applies to all higher orders. The first number must be 0, and
            the numbers must not decrease.
        n: The highest n-gram order.

    Raises:
        BadInput: The text does not have this form.
    """
    numbers = tuple(int(x) for x in text.split() if x.isascii() and x.isdigit())
    is_valid = 1 <= len(numbers) == len(text.split()) <= n and numbers[0] == 0 and list(numbers) == sorted(numbers)
    allowed = f"must be 1 to {n} non-decreasing integers, one per order, starting with 0, such as '0 0 1'"
    require(is_valid and numbers[-1] < 2**31, 'model.prune', text, allowed)
    return (*numbers, *(numbers[-1] for _ in range(n - len(numbers))))


def keep_frequent(counts: NgramCounts, thresholds: Sequence[int]) -> list[np.ndarray]:
    """Selects frequent n-grams and their contexts. Returns a boolean array for each order.

    Args:
        counts: The n-grams.
        thresholds: The largest count to drop for each order; 0 for order 1.

    Raises:
        BadInput: An order would lose all its n-grams.
    """
    table = counts.table
    is_kept = [np.ones(table.size(1), bool)]
    is_kept += [counts.counts[k - 1] > thresholds[k - 1] for k in range(2, table.n + 1)]
    for k in range(table.n, 2, -1):
        # A context may have a smaller count than an n-gram that extends it, because words before the span are not
        # counted.
        for block in table.blocks(k, counts.scratch.block):
            is_kept[k - 2][block.contexts] |= block.sum_by_context(is_kept[k - 1][block.nodes]) > 0
    emptied = next((k for k, kept in enumerate(is_kept, start=1) if len(kept) and not kept.any()), 0)
    value = ' '.join(map(str, thresholds))
    require(
        not emptied, 'model.prune', value, f'must be smaller, because this value removes all n-grams of order {emptied}'
    )
    return is_kept


def drop(model: BackoffModel, is_kept: Sequence[np.ndarray], scratch: Scratch = SCRATCH) -> BackoffModel:
    """Removes n-grams from a model, so that the model backs off for them.

    No other probability changes. The probabilities therefore sum to one only if the probability of each dropped n-gram
    already equals its back-off probability, as it does after estimation with the same thresholds.

    Args:
        model: The model.
        is_kept: For each order, whether to keep each n-gram. All words and all contexts of kept n-grams must be kept.
        scratch: The allocator of large arrays.
    """
    size = model.table.vocabulary_size
    keys, log_p, log_b = [model.table.keys[0]], [model.log_p[0]], [np.asarray(x) for x in model.log_b[:1]]
    new_nodes = np.arange(size)
    for k in range(2, model.n + 1):
        key_writer, *value_writers = scratch.writer(np.int64), scratch.writer(np.float64), scratch.writer(np.float64)
        values = [model.log_p[k - 1], *model.log_b[k - 1 : k]]
        for block in model.table.blocks(k, scratch.block):
            kept = np.flatnonzero(is_kept[k - 1][block.nodes])
            contexts = new_nodes[block.prefixes[kept] + block.contexts.start]
            key_writer.append(contexts * size + model.table.keys[k - 1][block.nodes][kept] % size)
            for writer, array in zip(value_writers, values):
                writer.append(array[block.nodes][kept])
        release(model.table.keys[k - 1], *values)
        keys.append(key_writer.finish())
        for arrays, writer, _ in zip((log_p, log_b), value_writers, values):
            arrays.append(writer.finish())
        new_nodes = np.cumsum(is_kept[k - 1]) - 1
    return BackoffModel(NgramTable(size, tuple(keys)), log_p, log_b)
