"""Counts n-grams, and stores tables of n-grams as sorted arrays of packed keys.

The n-grams of order k are nodes, numbered by their position in a sorted int64 array of keys
`node of the first k-1 words * |V| + last word`. The successors of a context are therefore adjacent, and a vectorized
binary search looks up many n-grams at once. Keys are less than (number of nodes) * |V| for every n, so they fit int64.

Dims: T words of a span, B contexts, L words of a sequence, k order, V vocabulary.
"""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from nplm_jax.data.mapped_arrays import bincount, release
from nplm_jax.data.stream import Span, with_history
from nplm_jax.models.language_model import check_contexts, last_words
from nplm_jax.ngram.integers import node_dtype, sort_with_order
from nplm_jax.ngram.scratch import SCRATCH, Scratch, blocks
from nplm_jax.ngram.sorting import sort_ngrams
from nplm_jax.utils.errors import BadInput

_MAX_KEY = np.iinfo(np.int64).max
_SORTED_QUERIES = 4096  # the smallest number of queries for which sorting saves time


class Block(NamedTuple):
    """A range of n-grams of one order, with all their contexts.

    Attributes:
        nodes: The range of the n-grams' nodes.
        contexts: The range of the contexts' nodes in the order below.
        prefixes: The context of each n-gram as an index into `contexts`, int64.
    """

    nodes: slice
    contexts: slice
    prefixes: np.ndarray

    def sum_by_context(self, values: np.ndarray) -> np.ndarray:
        """Returns the float64 sums of values of n-grams by context."""
        sums = np.bincount(self.prefixes, values, self.contexts.stop - self.contexts.start)
        return sums.astype(np.float64, copy=False)  # NumPy returns integers for an empty block


@dataclasses.dataclass(frozen=True)
class NgramTable:
    """The n-grams of a model.

    Attributes:
        vocabulary_size: The number of words in the vocabulary, |V|.
        keys: keys[k-1] holds the sorted keys of order k, int64; order 1 has all |V| words.
    """

    vocabulary_size: int
    keys: tuple[np.ndarray, ...]

    @property
    def n(self) -> int:
        """The highest order."""
        return len(self.keys)

    def size(self, order: int) -> int:
        """Returns the number of n-grams of an order. Order 0 has one n-gram, the empty one."""
        return len(self.keys[order - 1]) if order else 1

    def prefixes(self, order: int) -> np.ndarray:
        """Returns the int64 node of the first `order - 1` words of each n-gram of `order`."""
        return self.keys[order - 1] // self.vocabulary_size

    def first_successors(self, order: int) -> np.ndarray:
        """Returns the first n-gram that begins with each node of `order - 1`. The last element is the n-gram count."""
        first = np.searchsorted(self.keys[order - 1], np.arange(self.size(order - 1) + 1) * self.vocabulary_size)
        return first.astype(node_dtype(self.size(order)))

    def beginning_with(self, word: int) -> list[slice]:
        """Returns, for each order, the range of n-grams that begin with a word."""
        slices = [slice(word, word + 1)]
        for keys in self.keys[1:]:
            first = np.array([slices[-1].start, slices[-1].stop]) * self.vocabulary_size
            slices.append(slice(*np.searchsorted(keys, first).tolist()))
        return slices

    def nodes(self, words_L: np.ndarray, n: int) -> list[np.ndarray]:
        """Looks up the n-grams that end at each word.

        Args:
            words_L: Ids in reading order along the last axis; leading axes are independent sequences.
            n: The highest order to look up.

        Returns:
            For each order 0..n, an array with the shape of `words_L`: the node of the n-gram that ends at each word,
            or -1 if the n-gram is not in the table. int64.

        Raises:
            BadInput: An id is outside the vocabulary.
        """
        words_L = check_ids(words_L, self.vocabulary_size)
        nodes = [np.zeros_like(words_L)]
        for keys in self.keys[:n]:
            prefixes = np.full_like(words_L, -1)
            prefixes[..., 1:] = nodes[-1][..., :-1]
            if len(nodes) == 1:
                prefixes[..., :1] = 0  # the empty n-gram also precedes the first word
            # A missing prefix (-1) gives a negative key, which no table contains.
            nodes.append(find(keys, prefixes * self.vocabulary_size + words_L))
        return nodes

    def context_nodes(self, contexts_BxN: np.ndarray, n: int) -> list[np.ndarray]:
        """Returns the nodes of the last 0..n-1 words in each context. The rare-word symbol replaces missing words."""
        words_BxN = last_words(check_contexts(contexts_BxN, self.vocabulary_size), n + 1)
        return [x[:, -1] for x in self.nodes(words_BxN, n - 1)]

    def blocks(self, order: int, size: int) -> Iterator[Block]:
        """Yields the n-grams of an order in blocks. All n-grams of one context are in the same block.

        Args:
            order: The order of the n-grams.
            size: The number of n-grams per block. A block is larger if a single context has more n-grams.
        """
        keys, num_contexts = self.keys[order - 1], self.size(order - 1)
        start = first = 0
        while first < num_contexts:
            stop, last = len(keys), num_contexts
            if start + size < stop:
                last = max(int(keys[start + size]) // self.vocabulary_size, first + 1)
                stop = int(np.searchsorted(keys, last * self.vocabulary_size))
            yield Block(slice(start, stop), slice(first, last), keys[start:stop] // self.vocabulary_size - first)
            start, first = stop, last

    def successors(self, order: int, contexts_B: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Finds all n-grams that begin with the given contexts.

        Args:
            order: The order of the n-grams.
            contexts_B: Nodes of `order - 1`; -1 has no successors.

        Returns:
            Three flat int64 arrays with one entry for each n-gram: the row of its context in `contexts_B`, its last
            word, and its node.
        """
        keys, size = self.keys[order - 1], self.vocabulary_size
        first_B = np.searchsorted(keys, contexts_B * size)
        lengths_B = np.searchsorted(keys, (contexts_B + 1) * size) - first_B
        rows = np.repeat(np.arange(len(contexts_B)), lengths_B)
        nodes = np.arange(len(rows)) + np.repeat(first_B - np.cumsum(lengths_B) + lengths_B, lengths_B)
        return rows, keys[nodes] % size, nodes


class LineMarks(NamedTuple):
    """The ids of the tokens that separate the lines of a text.

    Attributes:
        line: The id of the token before each line, which is `<p>` or a newline token.
        text: The id of `<text>` if the vocabulary contains `<text>` but the text does not, else None.
        are_crossed: Whether n-grams extend across lines, as in a stream. Otherwise, `line` is only the first or last
            word of an n-gram.
    """

    line: int
    text: int | None = None
    are_crossed: bool = False


@dataclasses.dataclass(frozen=True)
class NgramCounts:
    """The number of times each n-gram in a table ends at a word in the counted span.

    Attributes:
        table: The n-grams.
        counts: counts[k-1] holds the counts of order k, int32 or int64, one per node. A count can be 0, because the
            table also contains n-grams that end before the span and words that do not occur in it.
        suffix_nodes: suffix_nodes[k-1] holds, for each node of order k, the node of order k-1 without its first word;
            int32 or int64.
        scratch: Storage for arrays computed from the counts.
        marks: The tokens that separate lines, or None if no token does.
    """

    table: NgramTable
    counts: tuple[np.ndarray, ...]
    suffix_nodes: tuple[np.ndarray, ...]
    scratch: Scratch = SCRATCH
    marks: LineMarks | None = None

    def totals(self, order: int) -> np.ndarray:
        """Returns the float64 number of counted words after each context of length `order - 1`."""
        return np.bincount(self.table.prefixes(order), self.counts[order - 1], self.table.size(order - 1))


def count(
    tokens_T: np.ndarray,
    span: Span,
    n: int,
    vocabulary_size: int,
    scratch: Scratch = SCRATCH,
    marks: LineMarks | None = None,
) -> NgramCounts:
    """Counts the n-grams of orders 1..n that end at the words of `span`.

    Every word is counted once in every order. The contexts of the first words extend to the words before the span, and
    are filled with the rare-word symbol before the start of the stream, as are the contexts of a network.

    Args:
        tokens_T: The token ids of the stream, int.
        span: The span of the words to count.
        n: The highest n-gram order.
        vocabulary_size: The number of words in the vocabulary, |V|.
        scratch: The allocator of large arrays.
        marks: The tokens that separate lines, or None if no token does.

    Raises:
        BadInput: The span is empty, n is below 1, an id is outside the vocabulary, the n-grams do not fit into int64
            keys, or the disk is full.
    """
    if len(span) < 1 or n < 1:
        raise BadInput('n', f'must be 1 or more, and the span of {len(span)} words must not be empty', value=n)
    num_words = n - 1 + len(span)
    if num_words > _MAX_KEY // vocabulary_size:
        raise BadInput(
            f'{num_words:,} words and a vocabulary of {vocabulary_size:,}', 'are too many for 64-bit n-grams'
        )
    words_L = _copy_words(tokens_T, span, n - 1, vocabulary_size, scratch)
    dtype = node_dtype(num_words)
    unigrams = bincount(words_L[n - 1 :], vocabulary_size).astype(dtype)
    longer = sort_ngrams(words_L, n, vocabulary_size, scratch)
    keys, counts, suffix_nodes = (tuple(arrays) for arrays in zip(*longer)) if longer else ((), (), ())
    table = NgramTable(vocabulary_size, (np.arange(vocabulary_size), *keys))
    suffix_nodes = np.zeros(vocabulary_size, dtype), *suffix_nodes
    counted = NgramCounts(table, (unigrams, *counts), suffix_nodes, scratch, marks)
    return counted if marks is None or marks.are_crossed else _without_crossing(counted, marks)


def _without_crossing(counts: NgramCounts, marks: LineMarks) -> NgramCounts:
    """Removes n-grams with the line mark in the middle, and n-grams that occur only as contexts before the span."""
    scratch, table, size = counts.scratch, counts.table, counts.table.vocabulary_size
    kept_arrays: list[list[np.ndarray]] = [[table.keys[0]], [counts.counts[0]], [counts.suffix_nodes[0]]]
    new_nodes, goes_on = np.arange(size), np.ones(size, bool)  # values for the order below
    for k in range(2, table.n + 1):
        arrays = table.keys[k - 1], counts.counts[k - 1], counts.suffix_nodes[k - 1]
        writers = [scratch.writer(array.dtype.type) for array in arrays]
        is_kept, is_end = np.zeros((2, table.size(k)), bool)
        for block in table.blocks(k, scratch.block):
            keys, occurrences, suffix_nodes = (array[block.nodes] for array in arrays)
            contexts, words = block.prefixes + block.contexts.start, keys % size
            kept = goes_on[contexts] & (occurrences > 0)
            is_kept[block.nodes], is_end[block.nodes] = kept, words == marks.line
            new_keys = new_nodes[contexts] * size + words
            for writer, array in zip(writers, (new_keys, occurrences, new_nodes[suffix_nodes])):
                writer.append(array[kept])
        release(*arrays)
        for series, writer in zip(kept_arrays, writers):
            series.append(writer.finish())
        new_nodes, goes_on = np.cumsum(is_kept) - 1, is_kept & ~is_end
    all_keys, all_counts, all_suffix_nodes = map(tuple, kept_arrays)
    return NgramCounts(NgramTable(size, all_keys), all_counts, all_suffix_nodes, scratch, marks)


def _copy_words(
    tokens_T: np.ndarray, span: Span, num_context: int, vocabulary_size: int, scratch: Scratch
) -> np.ndarray:
    """Copies the words that `with_history` returns, as int32 if V is small enough. Raises BadInput for invalid ids."""
    writer = scratch.writer(node_dtype(vocabulary_size))
    writer.append(check_ids(with_history(tokens_T, Span(span.start, span.start), num_context), vocabulary_size))
    for block in blocks(len(span), scratch.block):
        writer.append(check_ids(tokens_T[span.start + block.start : span.start + block.stop], vocabulary_size))
    return writer.finish()


def check_ids(words: np.ndarray, vocabulary_size: int) -> np.ndarray:
    """Returns the ids as int64.

    Raises:
        BadInput: An id is outside the vocabulary.
    """
    words = np.asarray(words, np.int64)
    if words.size and not (words.min() >= 0 and words.max() < vocabulary_size):
        allowed = f'must be between 0 and {vocabulary_size - 1:,}, because the vocabulary has {vocabulary_size:,} words'
        raise BadInput(f'word ids {words.min()} to {words.max()}', allowed)
    return words


def find(keys: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Returns the index of each query in the sorted `keys`, or -1 if it is absent."""
    if not len(keys):
        return np.full_like(queries, -1)
    if queries.size < _SORTED_QUERIES:
        return _find_in_order(keys, queries)
    # Sorted queries access the table in order. In any other order, each step of a binary search is a cache miss.
    nodes = np.full(queries.size, -1, np.int64)
    possible = np.flatnonzero(queries >= 0)
    sorted_queries, order = sort_with_order(queries.reshape(-1)[possible])
    nodes[possible[order]] = _find_in_order(keys, sorted_queries)
    return nodes.reshape(queries.shape)


def _find_in_order(keys: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Implements `find` for nonempty keys without sorting the queries."""
    indices = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[indices] == queries, indices, -1)
