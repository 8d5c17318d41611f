"""Quantizes back-off models.

Above order 1, each log p takes one of 256 or 65,536 values per order. The back-off weights are recomputed from these
values (`normalization`) and stored in 32 bits, so the probabilities still sum to one.
"""

import dataclasses
from typing import Self

import numpy as np

from nplm_jax.data.mapped_arrays import release
from nplm_jax.ngram.backoff import BackoffModel
from nplm_jax.ngram.normalization import leftover_mass, log_backoff, suffix_log_p, suffix_nodes
from nplm_jax.ngram.scratch import SCRATCH, Scratch, blocks

BITS = (8, 16)
_SAMPLE = 2**22  # number of values from which the bins are computed
_NOTHING = 1e-6  # a smaller probability mass is a rounding error of the quantization


@dataclasses.dataclass(eq=False)
class QuantizedArray:
    """An array stored as indices into a short list of values; indexing returns float64 values.

    Attributes:
        codes: The index of each number in `values`, uint8 or uint16.
        values: The values, sorted, float64.
    """

    codes: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, array: np.ndarray, bits: int, scratch: Scratch) -> Self:
        """Sorts the numbers in an array into equally populated bins, and replaces each number with the mean of its bin.

        -inf and the smallest number stay exact. All numbers stay exact if the array has at most 2**22 elements and
        2**bits - 2 distinct finite values.

        References:
            Federico & Bertoldi, 2006: How many bits are needed to store probabilities for phrase-based translation?
        """
        chunks = [array[block] for block in blocks(len(array), scratch.block)]
        smallest = min((chunk.min(initial=np.inf, where=np.isfinite(chunk)) for chunk in chunks), default=np.inf)
        sample = np.sort(array[:: max(-(-len(array) // _SAMPLE), 1)])
        sample = sample[np.isfinite(sample)]
        centers, num_bins = np.unique(sample), 2**bits - 2
        if len(centers) > num_bins:
            first = np.arange(num_bins) * len(sample) // num_bins
            centers = np.unique(np.add.reduceat(sample, first) / np.diff(first, append=len(sample)))
        values = np.unique([-np.inf, min(smallest, 0.0), *centers])
        borders = (values[2:] + values[1:-1]) / 2
        writer = scratch.writer(np.uint8 if bits == 8 else np.uint16)
        for chunk in chunks:
            writer.append(np.where(np.isneginf(chunk), 0, np.searchsorted(borders, chunk) + 1))
        release(array)
        return cls(writer.finish(), values)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: np.ndarray | slice) -> np.ndarray:
        return self.values[self.codes[index]]

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.values[self.codes], dtype)

    @property
    def nbytes(self) -> int:
        """The memory size in bytes."""
        return self.codes.nbytes + self.values.nbytes


def quantize(model: BackoffModel, bits: int, scratch: Scratch = SCRATCH) -> BackoffModel:
    """Quantizes log p above order 1 to 8 or 16 bits and recomputes the back-off weights.

    An order stays exact if the words after one of its contexts have a total probability of one, because no back-off
    weight can compensate for the rounding. This happens in unsmoothed models and with vocabularies of a few dozen
    words.

    Args:
        model: A model whose probabilities sum to one.
        bits: The number of bits per log p, 8 or 16.
        scratch: The allocator of large arrays.
    """
    table, suffixes = model.table, np.zeros(model.table.vocabulary_size, np.int64)
    smaller = BackoffModel(table, model.log_p[:1], [])
    for k in range(2, model.n + 1):
        suffixes, exact = suffix_nodes(table, k, suffixes, scratch), model.log_p[k - 1]
        is_exact = any((leftover_mass(block, exact) < _NOTHING).any() for block in table.blocks(k, scratch.block))
        log_p = exact if is_exact else QuantizedArray.of(exact, bits, scratch)
        log_b = _normalize(smaller, log_p, exact, suffixes, scratch)
        release(table.keys[k - 1], exact, suffixes)
        smaller = BackoffModel(table, [*smaller.log_p, log_p], [*smaller.log_b, log_b])
    return smaller


def compact(model: BackoffModel) -> BackoffModel:
    """Compresses a model whose numbers have seven digits: log b to float32, and log p to codes if this saves memory."""
    log_p = [model.log_p[0], *map(_as_codes, model.log_p[1:])]
    return BackoffModel(model.table, log_p, [np.asarray(log_b, np.float32) for log_b in model.log_b])


def _as_codes(array: np.ndarray) -> np.ndarray | QuantizedArray:
    """Converts an array to codes if this saves memory."""
    values, codes = np.unique(array, return_inverse=True)
    if len(values) > 2 ** BITS[-1]:
        return array
    coded = QuantizedArray(codes.astype(np.uint8 if len(values) <= 2 ** BITS[0] else np.uint16), values)
    return coded if coded.nbytes < array.nbytes else array


def _normalize(
    lower: BackoffModel,
    log_p: np.ndarray | QuantizedArray,
    exact: np.ndarray,
    suffixes: np.ndarray,
    scratch: Scratch,
) -> np.ndarray:
    """Computes the float32 log b of the contexts of the next order so that the probabilities sum to one.

    If rounding to the nearest value leaves too little mass for words that do not follow a context, the probabilities
    after this context are rounded down.

    Args:
        lower: The model of the lower orders.
        log_p: log p of the next order, whose codes are modified in place.
        exact: log p before rounding.
        suffixes: The suffix node of each n-gram of the next order, or -1.
        scratch: The allocator of the arrays.
    """
    order, writer = lower.n + 1, scratch.writer(np.float32)
    for block in lower.table.blocks(order, scratch.block):
        unseen = 1 - block.sum_by_context(np.exp(suffix_log_p(lower, order, block.nodes, suffixes[block.nodes])))
        remaining = leftover_mass(block, log_p)
        is_low = (remaining < leftover_mass(block, exact) / 2)[block.prefixes]
        if isinstance(log_p, QuantizedArray) and is_low.any():
            index = block.nodes.start + np.flatnonzero(is_low)
            log_p.codes[index] = np.searchsorted(log_p.values, exact[index], side='right') - 1
            remaining = leftover_mass(block, log_p)
        writer.append(log_backoff(remaining, unseen))
    return writer.finish()
