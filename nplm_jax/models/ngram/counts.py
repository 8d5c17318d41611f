"""Tables of n-grams as sorted arrays of packed keys, and how often each occurs.

The n-grams of order k are nodes, numbered by their place in a sorted int64 array of keys
`node of the first k-1 words * |V| + last word`. So the successors of a context stand side by side, many
n-grams are looked up in one binary search, and a key stays below (number of nodes) * |V| whatever n is.

Dims: T words of a span, B contexts, L words of a sequence, k order, V vocabulary.
"""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from nplm_jax.data.corpora import Span
from nplm_jax.data.vocabulary import RARE_ID
from nplm_jax.utils.errors import BadInput

_LARGEST_KEY = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True)
class NgramTable:
    """Which n-grams there are. keys[k-1]: the sorted keys of order k; order 1 has all |V| words."""

    vocabulary_size: int
    keys: tuple[np.ndarray, ...]

    @property
    def n(self) -> int:
        return len(self.keys)

    def size(self, order: int) -> int:
        """How many n-grams of this order there are; of order 0 there is one, the empty one."""
        return len(self.keys[order - 1]) if order else 1

    def prefixes(self, order: int) -> np.ndarray:
        """The node of each n-gram's first order-1 words."""
        return self.keys[order - 1] // self.vocabulary_size

    def nodes(self, words_L: np.ndarray, n: int) -> list[np.ndarray]:
        """For each order 0..n the node of the n-gram that ends at each word; -1 where there is none.

        words_L: ids in reading order along the last axis; axes before it are independent sequences.
        Raises: BadInput for an id outside the vocabulary.
        """
        words_L = check_ids(words_L, self.vocabulary_size)
        found = [np.zeros_like(words_L)]
        for keys in self.keys[:n]:
            shorter = np.full_like(words_L, -1)
            shorter[..., 1:] = found[-1][..., :-1]
            if len(found) == 1:
                shorter[..., :1] = 0  # the empty n-gram stands before the first word too
            # A missing prefix, -1, gives a negative key, which no table holds.
            found.append(find(keys, shorter * self.vocabulary_size + words_L))
        return found

    def stream_nodes(
        self, tokens_T: jax.Array | np.ndarray, span: Span, n: int
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The n-grams that end at each word of `span`, orders 0..n, and their contexts, lengths 0..n-1."""
        nodes = self.nodes(with_history(tokens_T, span, n), n)
        return [x[n:] for x in nodes], [x[n - 1 : -1] for x in nodes[:n]]

    def context_nodes(self, contexts_BxN: np.ndarray, n: int) -> list[np.ndarray]:
        """The nodes of the last 0, 1, ..., n-1 words of each context; missing words are the rare one."""
        recent_BxN = np.asarray(contexts_BxN)[:, -n:]
        words_BxN = np.pad(recent_BxN, ((0, 0), (n - recent_BxN.shape[1], 0)), constant_values=RARE_ID)
        return [x[:, -1] for x in self.nodes(words_BxN, n - 1)]

    def successors(self, order: int, contexts_B: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """All n-grams of this order that begin with the given nodes of order-1; -1 has none.

        Returns: rows (which of the contexts), words (the last of the n-gram), nodes: three flat arrays.
        """
        keys, size = self.keys[order - 1], self.vocabulary_size
        first_B = np.searchsorted(keys, contexts_B * size)
        lengths_B = np.searchsorted(keys, (contexts_B + 1) * size) - first_B
        rows = np.repeat(np.arange(len(contexts_B)), lengths_B)
        nodes = np.arange(len(rows)) + np.repeat(first_B - np.cumsum(lengths_B) + lengths_B, lengths_B)
        return rows, keys[nodes] % size, nodes


@dataclasses.dataclass(frozen=True)
class NgramCounts:
    """How often each n-gram of a table ends at a word of the counted span.

    counts[k-1]: int64, one a node of order k. A node can have count 0: the words before the span are there
    as contexts only, and a word of the vocabulary may be absent.
    suffixes[k-1]: the node of order k-1 that is the n-gram without its first word.
    """

    table: NgramTable
    counts: tuple[np.ndarray, ...]
    suffixes: tuple[np.ndarray, ...]

    def totals(self, order: int) -> np.ndarray:
        """How often each context of length order-1 stands before a counted word."""
        return self.sum_by_context(order, self.counts[order - 1])

    def sum_by_context(self, order: int, values: np.ndarray) -> np.ndarray:
        """Sums a value of each n-gram over the n-grams of one context. float64, one a node of order-1."""
        return np.bincount(self.table.prefixes(order), values, self.table.size(order - 1))


def count(tokens_T: jax.Array | np.ndarray, span: Span, n: int, vocabulary_size: int) -> NgramCounts:
    """Counts the n-grams of orders 1..n that end at the words of `span`.

    Every word counts once in every order: the contexts of the first ones reach back to the words before the
    span, and before the start of the stream to the rare-word symbol, as those of the network do.
    Raises: BadInput for an empty span, an id outside the vocabulary, or more n-grams than int64 can pack.
    """
    if len(span) < 1 or n < 1:
        raise BadInput(f'n={n}, {len(span)} words: counting n-grams needs n of 1 or more and a word or more')
    words_L = check_ids(with_history(tokens_T, span, n - 1), vocabulary_size)
    if len(words_L) > _LARGEST_KEY // vocabulary_size:
        raise BadInput(f'{len(words_L):,} words and a vocabulary of {vocabulary_size:,}: too large to pack in 64 bits')
    keys, counts = [np.arange(vocabulary_size)], [np.bincount(words_L[n - 1 :], minlength=vocabulary_size)]
    suffixes = [np.zeros(vocabulary_size, np.int64)]
    nodes_L = words_L  # the nodes of order k-1 that end at words k-2, k-1, ...
    for k in range(2, n + 1):
        kinds, longer_L = np.unique(nodes_L[:-1] * vocabulary_size + words_L[k - 1 :], return_inverse=True)
        keys.append(kinds)
        counts.append(np.bincount(longer_L[n - k :], minlength=len(kinds)))
        suffixes.append(np.empty(len(kinds), np.int64))
        suffixes[-1][longer_L] = nodes_L[1:]
        nodes_L = longer_L
    return NgramCounts(NgramTable(vocabulary_size, tuple(keys)), tuple(counts), tuple(suffixes))


def with_history(tokens_T: jax.Array | np.ndarray, span: Span, num_context: int) -> np.ndarray:
    """The words of `span` and the `num_context` before it, the rare-word symbol before the stream. int64."""
    words_L = np.asarray(tokens_T[max(span.start - num_context, 0) : span.stop], np.int64)
    return np.pad(words_L, (num_context + len(span) - len(words_L), 0), constant_values=RARE_ID)


def check_ids(words: np.ndarray, vocabulary_size: int) -> np.ndarray:
    """The ids as int64. Raises: BadInput for one outside the vocabulary, which would pack into a wrong key."""
    words = np.asarray(words, np.int64)
    if words.size and not (words.min() >= 0 and words.max() < vocabulary_size):
        raise BadInput(f'word ids {words.min()} to {words.max()}: outside the vocabulary of {vocabulary_size:,} words')
    return words


def find(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where each wanted key stands among the sorted ones; -1 where it does not."""
    if not len(keys):
        return np.full_like(wanted, -1)
    where = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[where] == wanted, where, -1)
