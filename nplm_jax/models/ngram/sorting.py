"""Finds all n-grams of a stream of words by sorting the positions where they start, order by order.

The positions are sorted by their first word, then by two words, and so on: the groups of equal (k-1)-grams are refined
by the k-th word. So each order is sorted a block of whole groups at a time, in 64-bit numbers. The memory depends on
the size of a block, and on how often the most frequent word occurs.

Dims: L words of a sequence, S positions of a block.
"""

from collections.abc import Iterator

import numpy as np

from nplm_jax.models.ngram.scratch import Scratch, blocks
from nplm_jax.utils.mapped_arrays import bincount, release
from nplm_jax.utils.progress import progress_bar

_BITS = 63  # of a sorted number

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


def sort_ngrams(words_L: np.ndarray, n: int, vocabulary_size: int, scratch: Scratch) -> list[Arrays]:
    """Returns the n-grams of orders 2..n.

    Args:
        words_L: Ids in reading order, all in the vocabulary. The first n-1 words are contexts and are not counted.
        n: The highest order.
        vocabulary_size: |V|.
        scratch: Makes the arrays.

    Returns:
        For each order its sorted keys `node of the first k-1 words * |V| + last word`, int64; how often each n-gram
        ends at a counted word, int32 or int64; and the node of each without its first word, int32 or int64.

    Raises:
        BadInput: The disk is full.
    """
    dtype, ngrams = node_dtype(len(words_L)), []
    nodes_L = words_L  # of the (k-1)-gram that starts at each word
    starts, nodes = _sort_by_word(words_L, vocabulary_size, scratch) if n > 1 else (words_L, words_L)
    with progress_bar(len(words_L) * (n - 1), 'counting n-grams', ' words') as bar:
        for k in range(2, n + 1):
            keys, *writers = scratch.writer(np.int64), *(scratch.writer(dtype) for _ in range(4))
            counts, suffix_nodes, next_starts, next_nodes = writers
            next_nodes_L, size = scratch.zeros(len(words_L) if k < n else 0, dtype), 0
            for block in _groups(nodes, scratch.block):
                bar.update(block.stop - block.start)
                fits_S = starts[block] <= len(words_L) - k
                starts_S, prefixes_S = starts[block][fits_S], nodes[block][fits_S].astype(np.int64)
                if not len(starts_S):
                    continue
                base = int(prefixes_S[0])
                keys_S = (prefixes_S - base) * vocabulary_size + words_L[starts_S + (k - 1)]
                keys_S, order_S = sort_with_order(keys_S)
                starts_S, is_first_S = starts_S[order_S], np.append(True, keys_S[1:] != keys_S[:-1])
                first = np.flatnonzero(is_first_S)
                keys.append(keys_S[first] + base * vocabulary_size)
                # Those that start earlier end before the first counted word.
                counts.append(np.add.reduceat(starts_S >= n - k, first, dtype=np.int64))
                suffix_nodes.append(nodes_L[starts_S[first] + 1])
                if k < n:
                    nodes_S = (size + np.cumsum(is_first_S) - 1).astype(dtype)
                    next_starts.append(starts_S)
                    next_nodes.append(nodes_S)
                    next_nodes_L[starts_S] = nodes_S
                size += len(first)
            ngrams.append((keys.finish(), counts.finish(), suffix_nodes.finish()))
            nodes_L, starts, nodes = next_nodes_L, next_starts.finish(), next_nodes.finish()
            release(words_L, nodes_L, starts, nodes, *ngrams[-1])
    return ngrams


def _sort_by_word(words_L: np.ndarray, vocabulary_size: int, scratch: Scratch) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions of the words, sorted by word, those of one word in their order; and the sorted words."""
    starts = scratch.zeros(len(words_L), node_dtype(len(words_L)))
    words = scratch.zeros(len(words_L), words_L.dtype.type)
    counts_V = bincount(words_L, vocabulary_size)
    next_V = np.cumsum(counts_V) - counts_V  # the place of the next position of each word
    for block in blocks(len(words_L), scratch.block):
        words_S, order_S = sort_with_order(words_L[block].astype(np.int64))
        number_S = np.arange(len(words_S)) - np.searchsorted(words_S, words_S)  # 0, 1, ... of each word
        places_S = next_V[words_S] + number_S
        starts[places_S], words[places_S] = block.start + order_S, words_S
        next_V += np.bincount(words_S, minlength=vocabulary_size)
    return starts, words


def _groups(nodes: np.ndarray, size: int) -> Iterator[slice]:
    """Yields the blocks of sorted nodes, of so many or more where one is longer, such that equal ones are together."""
    first = 0
    while first < len(nodes):
        stop = min(first + size, len(nodes))
        if stop < len(nodes):
            cut = int(np.searchsorted(nodes, nodes[stop]))
            stop = cut if cut > first else int(np.searchsorted(nodes, nodes[first], side='right'))
        yield slice(first, stop)
        first = stop


def node_dtype(num_words: int) -> type[np.signedinteger]:
    """Returns the smallest of int32 and int64 that holds a node, a position and a count of so many words."""
    return np.int32 if num_words < np.iinfo(np.int32).max else np.int64


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
