"""Tables of n-grams as sorted arrays of packed keys, and how often each n-gram occurs.

The n-grams of order k are nodes, numbered by their position in a sorted int64 array of keys
`node of the first k-1 words * |V| + last word`. So the successors of a context are adjacent, one binary search looks
up many n-grams, and a key stays below (number of nodes) * |V| for every n.

Dims: T words of a span, B contexts, L words of a sequence, k order, V vocabulary.
"""

import dataclasses

import numpy as np

from nplm_jax.data.corpora import Span
from nplm_jax.data.vocabulary import RARE_ID
from nplm_jax.models.language_model import check_contexts
from nplm_jax.utils.errors import BadInput

_MAX_KEY = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True)
class NgramTable:
    """The n-grams of a model.

    Attributes:
        vocabulary_size: |V|.
        keys: keys[k-1] holds the sorted keys of order k, int64; order 1 has all |V| words.
    """

    vocabulary_size: int
    keys: tuple[np.ndarray, ...]

    @property
    def n(self) -> int:
        """The highest order."""
        return len(self.keys)

    def size(self, order: int) -> int:
        """Returns the number of n-grams of an order; order 0 has one, the empty n-gram."""
        return len(self.keys[order - 1]) if order else 1

    def prefixes(self, order: int) -> np.ndarray:
        """Returns the node of each n-gram's first `order - 1` words. int64, one per node of `order`."""
        return self.keys[order - 1] // self.vocabulary_size

    def nodes(self, words_L: np.ndarray, n: int) -> list[np.ndarray]:
        """Looks up the n-grams that end at each word.

        Args:
            words_L: Ids in reading order along the last axis; the axes before it are independent sequences.
            n: The highest order to look up.

        Returns:
            For each order 0..n an array of the shape of `words_L`: the node of the n-gram that ends at each word, or
            -1 where the table does not have it. int64.

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
            # A missing prefix, -1, gives a negative key, which is in no table.
            nodes.append(find(keys, prefixes * self.vocabulary_size + words_L))
        return nodes

    def stream_nodes(self, tokens_T: np.ndarray, span: Span, n: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Returns the nodes that end at each word of `span`, orders 0..n, and of its contexts, lengths 0..n-1."""
        nodes = self.nodes(with_history(tokens_T, span, n), n)
        return [x[n:] for x in nodes], [x[n - 1 : -1] for x in nodes[:n]]

    def context_nodes(self, contexts_BxN: np.ndarray, n: int) -> list[np.ndarray]:
        """Returns the nodes of the last 0..n-1 words of each context; missing words are the rare-word symbol."""
        recent_BxN = check_contexts(contexts_BxN)[:, -n:]
        words_BxN = np.pad(recent_BxN, ((0, 0), (n - recent_BxN.shape[1], 0)), constant_values=RARE_ID)
        return [x[:, -1] for x in self.nodes(words_BxN, n - 1)]

    def successors(self, order: int, contexts_B: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Finds all n-grams that begin with given contexts.

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


@dataclasses.dataclass(frozen=True)
class NgramCounts:
    """How often each n-gram of a table ends at a word of the counted span.

    Attributes:
        table: The n-grams.
        counts: counts[k-1] holds the counts of order k, int64, one per node. A count can be 0: the words before the
            span are in the table only as contexts, and a word of the vocabulary may be absent from the span.
        suffix_nodes: suffix_nodes[k-1] holds for each node of order k the node of order k-1 without its first word.
    """

    table: NgramTable
    counts: tuple[np.ndarray, ...]
    suffix_nodes: tuple[np.ndarray, ...]

    def totals(self, order: int) -> np.ndarray:
        """Returns how often each context of length `order - 1` precedes a counted word. float64."""
        return self.sum_by_context(order, self.counts[order - 1])

    def sum_by_context(self, order: int, values: np.ndarray) -> np.ndarray:
        """Sums a value of each n-gram over the n-grams of one context. Returns float64, one per node of `order - 1`."""
        return np.bincount(self.table.prefixes(order), values, self.table.size(order - 1))


def count(tokens_T: np.ndarray, span: Span, n: int, vocabulary_size: int) -> NgramCounts:
    """Counts the n-grams of orders 1..n that end at the words of `span`.

    Every word counts once in every order. The contexts of the first words reach back to the words before the span,
    and before the start of the stream to the rare-word symbol, as a network's contexts do.

    Raises:
        BadInput: The span is empty, n is below 1, an id is outside the vocabulary, or int64 cannot pack the n-grams.
    """
    if len(span) < 1 or n < 1:
        raise BadInput(f'n={n}, {len(span)} words: counting n-grams needs n >= 1 and one word or more')
    words_L = check_ids(with_history(tokens_T, span, n - 1), vocabulary_size)
    if len(words_L) > _MAX_KEY // vocabulary_size:
        raise BadInput(f'{len(words_L):,} words and a vocabulary of {vocabulary_size:,}: too large to pack in 64 bits')
    keys, counts = [np.arange(vocabulary_size)], [np.bincount(words_L[n - 1 :], minlength=vocabulary_size)]
    suffix_nodes = [np.zeros(vocabulary_size, np.int64)]
    nodes_L = words_L  # the nodes of order k-1 that end at words k-2, k-1, ...
    for k in range(2, n + 1):
        unique_keys, next_nodes_L = np.unique(nodes_L[:-1] * vocabulary_size + words_L[k - 1 :], return_inverse=True)
        keys.append(unique_keys)
        counts.append(np.bincount(next_nodes_L[n - k :], minlength=len(unique_keys)))
        suffix_nodes.append(np.empty(len(unique_keys), np.int64))
        suffix_nodes[-1][next_nodes_L] = nodes_L[1:]
        nodes_L = next_nodes_L
    return NgramCounts(NgramTable(vocabulary_size, tuple(keys)), tuple(counts), tuple(suffix_nodes))


def with_history(tokens_T: np.ndarray, span: Span, num_context: int) -> np.ndarray:
    """Returns the words of `span` and the `num_context` before it, the rare-word symbol before the stream. int64."""
    words_L = np.asarray(tokens_T[max(span.start - num_context, 0) : span.stop], np.int64)
    return np.pad(words_L, (num_context + len(span) - len(words_L), 0), constant_values=RARE_ID)


def check_ids(words: np.ndarray, vocabulary_size: int) -> np.ndarray:
    """Returns the ids as int64.

    Raises:
        BadInput: An id is outside the vocabulary; it would pack into a wrong key.
    """
    words = np.asarray(words, np.int64)
    if words.size and not (words.min() >= 0 and words.max() < vocabulary_size):
        raise BadInput(f'word ids {words.min()} to {words.max()}: outside the vocabulary of {vocabulary_size:,} words')
    return words


def find(keys: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Returns the index of each query among the sorted `keys`, or -1 where it is absent."""
    if not len(keys):
        return np.full_like(queries, -1)
    indices = np.minimum(np.searchsorted(keys, queries), len(keys) - 1)
    return np.where(keys[indices] == queries, indices, -1)
