"""Finds all n-grams of a stream of words by sorting the positions where they start, a bucket of first words at a time.

The positions of a bucket are sorted by their first word, then by two words, and so on: the groups of equal (k-1)-grams
are refined by the k-th word. So each order is one sort of 64-bit numbers, and a bucket's n-grams of each order follow
those of the bucket before it. The memory depends on the size of a bucket, not on the number of words.

Dims: L words of a sequence, S positions of a bucket.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tqdm

from nplm_jax.models.ngram.scratch import Scratch, Writer
from nplm_jax.utils.mapped_arrays import bincount, release

_BITS = 63  # of a sorted number


class SortedNgrams(NamedTuple):
    """The n-grams of one order.

    Attributes:
        keys: The sorted keys `node of the first k-1 words * |V| + last word`, int64.
        counts: How often each ends at a counted word, int32 or int64.
        suffix_nodes: The node of each without its first word, int32 or int64.
    """

    keys: np.ndarray
    counts: np.ndarray
    suffix_nodes: np.ndarray


class _Order(NamedTuple):
    """What is written of one order while the buckets are sorted; `starts` has one position of each n-gram."""

    keys: Writer
    counts: Writer
    starts: Writer


def sort_ngrams(words_L: np.ndarray, n: int, vocabulary_size: int, scratch: Scratch) -> list[SortedNgrams]:
    """Returns the n-grams of orders 2..n.

    Args:
        words_L: Ids in reading order, all in the vocabulary. The first n-1 words are contexts and are not counted.
        n: The highest order.
        vocabulary_size: |V|.
        scratch: Makes the arrays.

    Raises:
        BadInput: The disk is full.
    """
    dtype = node_dtype(len(words_L))
    orders = [_Order(*(scratch.writer(x) for x in (np.int64, dtype, dtype))) for _ in range(2, n + 1)]
    # nodes_at[k-1][i] is the node of the k-gram that starts at word i; at the highest order no one asks for it.
    nodes_at = [words_L, *(scratch.empty(len(words_L), dtype) for _ in range(2, n))]
    sizes = [0] * len(orders)
    with progress_bar(max(len(words_L) - 1, 0) if orders else 0, 'counting n-grams', ' words') as bar:
        for starts_S in _buckets(words_L, vocabulary_size, scratch.block) if orders else ():
            _sort_bucket(words_L, starts_S, vocabulary_size, orders, nodes_at, sizes)
            bar.update(len(starts_S))
    ngrams = []
    for order, lower_nodes in zip(orders, nodes_at):
        suffix_nodes = order.starts.finish()
        for block in blocks(len(suffix_nodes), scratch.block):
            suffix_nodes[block] = lower_nodes[suffix_nodes[block] + 1]
        ngrams.append(SortedNgrams(order.keys.finish(), order.counts.finish(), suffix_nodes))
        release(lower_nodes, suffix_nodes)
    return ngrams


def node_dtype(num_words: int) -> type[np.signedinteger]:
    """Returns the smallest of int32 and int64 that holds a node, a position and a count of so many words."""
    return np.int32 if num_words < np.iinfo(np.int32).max else np.int64


def blocks(size: int, block: int) -> Iterator[slice]:
    """Yields the slices of at most `block` elements that make up `size` elements."""
    for start in range(0, size, block):
        yield slice(start, min(start + block, size))


def progress_bar(total: int, description: str, unit: str) -> tqdm.tqdm:
    """Returns a bar that shows only on a terminal, and only for work of more than some seconds."""
    return tqdm.tqdm(
        total=total, desc=description, disable=None, unit=unit, unit_scale=True, dynamic_ncols=True, delay=3
    )


def sort_with_order(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorts numbers, equal ones in the order they have.

    Args:
        keys: Non-negative int64.

    Returns:
        The sorted numbers, and the index that each had.
    """
    bits = len(keys).bit_length()
    if len(keys) and int(keys.max()) >> (_BITS - bits):
        order = np.argsort(keys, kind='stable')
        return keys[order], order
    # Sorting numbers is several times faster than finding the order of numbers: the index is a part of the number.
    packed = keys << bits
    packed |= np.arange(len(keys))
    packed.sort()
    return packed >> bits, packed & ((1 << bits) - 1)


def _sort_bucket(
    words_L: np.ndarray,
    starts_S: np.ndarray,
    vocabulary_size: int,
    orders: list[_Order],
    nodes_at: list[np.ndarray],
    sizes: list[int],
) -> None:
    """Writes the n-grams of all orders that start at the positions of a bucket.

    Args:
        words_L: The words.
        starts_S: The positions, ascending; their first words (and, where one first word fills several buckets, their
            second words) are in no other bucket, and follow those of the bucket before.
        vocabulary_size: |V|.
        orders: The writers of orders 2..n.
        nodes_at: The nodes by position of orders 1..n-1, which are filled in.
        sizes: The number of n-grams of orders 2..n so far, which grows.
    """
    num_words, n = len(words_L), len(orders) + 1
    base, prefixes_S = 0, words_L[starts_S].astype(np.int64)
    for k, order in enumerate(orders, start=2):
        fits_S = starts_S <= num_words - k
        if not fits_S.all():
            starts_S, prefixes_S = starts_S[fits_S], prefixes_S[fits_S]
        if not len(starts_S):
            return
        lowest = int(prefixes_S.min())
        keys_S, order_S = sort_with_order((prefixes_S - lowest) * vocabulary_size + words_L[starts_S + (k - 1)])
        starts_S = starts_S[order_S]
        is_first_S = np.ones(len(keys_S), bool)
        np.not_equal(keys_S[1:], keys_S[:-1], out=is_first_S[1:])
        first = np.flatnonzero(is_first_S)
        prefixes_S = np.cumsum(is_first_S) - 1  # the nodes of order k, which are the prefixes of order k + 1
        counts = np.diff(first, append=len(keys_S))
        np.subtract.at(counts, prefixes_S[starts_S < n - k], 1)  # those that end before the first counted word
        order.keys.append(keys_S[first] + (base + lowest) * vocabulary_size)
        order.counts.append(counts)
        order.starts.append(starts_S[first])
        base = sizes[k - 2]
        sizes[k - 2] += len(first)
        if k < n:
            nodes_at[k - 1][starts_S] = base + prefixes_S


def _buckets(words_L: np.ndarray, vocabulary_size: int, size: int) -> Iterator[np.ndarray]:
    """Yields the positions of all words but the last, bucket by bucket; ascending in a bucket.

    Args:
        words_L: The words.
        vocabulary_size: |V|.
        size: The number of positions in a bucket. A bucket is larger only where two words follow each other more often.
    """
    counts_V = bincount(words_L[:-1], vocabulary_size)
    for first, stop in _ranges(counts_V, size):
        # `first` as an offset makes two comparisons one: smaller words become large unsigned numbers.
        offset, unsigned = words_L.dtype.type(first), np.dtype(f'u{words_L.itemsize}')
        pieces = [
            block.start + np.flatnonzero((words_L[block] - offset).view(unsigned) < unsigned.type(stop - first))
            for block in blocks(len(words_L) - 1, size)
        ]
        starts_S = np.concatenate(pieces)
        if len(starts_S) <= size:
            yield starts_S
            continue
        next_words_S = words_L[starts_S + 1]
        for next_first, next_stop in _ranges(np.bincount(next_words_S, minlength=vocabulary_size), size):
            yield starts_S[(next_words_S >= next_first) & (next_words_S < next_stop)]


def _ranges(counts: np.ndarray, size: int) -> Iterator[tuple[int, int]]:
    """Yields ranges [first, stop) of words, in order, whose counts add up to `size` at most, or of one word."""
    totals = np.append(0, np.cumsum(counts))
    first = 0
    while totals[first] < totals[-1]:
        stop = max(int(np.searchsorted(totals, totals[first] + size, side='right')) - 1, first + 1)
        if totals[stop] > totals[first]:
            yield first, stop
        first = stop
