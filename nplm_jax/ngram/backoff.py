"""Back-off models, the form in which all back-off and interpolated n-gram models are stored and scored.

P(w | h) = p(h w) if the n-gram h w is in the table, else b(h) P(w | h without its oldest word),
with b(h) = 1 for a context that is not in the table.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nplm_jax.data.stream import Span, with_history
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.ngram.counts import NgramTable
from nplm_jax.ngram.scratch import blocks

Values = Any  # a float64 array or a quantization.QuantizedArray, which supports the same indexing
_WORDS = 2**20  # number of words scored at once


@dataclasses.dataclass(eq=False, repr=False)
class BackoffModel(LanguageModel):
    """An n-gram model in back-off form.

    Attributes:
        table: The n-grams; orders above n are ignored.
        log_p: log_p[k-1] holds log p of each n-gram of order k, in nats, with one value per node of the table. The
            values are float64 or quantized.
        log_b: log_b[k-1] holds log b of each context of length k, k = 1..n-1, in nats, with one value per node of
            order k. The values are float64 or float32.
    """

    table: NgramTable
    log_p: list[Values]
    log_b: list[Values]

    def __post_init__(self) -> None:
        self.n: int = len(self.log_p)
        self.vocabulary_size: int = self.table.vocabulary_size

    def _describe_size(self) -> str:
        return f'{self.table.vocabulary_size:,} words, {sum(map(len, self.table.keys)):,} n-grams'

    def score_span(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """Returns the float32 log P(w_t | the n-1 words before it) in nats for each t in `span`."""
        chunks = [self.log_p_of(*nodes).astype(np.float32) for nodes in self._stream_nodes(tokens_T, span)]
        return np.concatenate([np.empty(0, np.float32), *chunks])

    def matched_lengths(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """Returns the length of the longest n-gram in the table that ends at each word in `span`."""
        orders = np.arange(1, self.n + 1)[:, None]
        chunks = [((np.stack(nodes[1:]) >= 0) * orders).max(0) for nodes, _ in self._stream_nodes(tokens_T, span)]
        return np.concatenate([np.empty(0, int), *chunks])

    def log_p_of(self, nodes: Sequence[np.ndarray], contexts: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the float64 log P of words after contexts, in nats.

        Args:
            nodes: For each order 0..n, the node of the n-gram that ends at each word, or -1 if it is not in the table.
                Order 0 is ignored.
            contexts: For each length 0..n-1, the node of the words before each word, or -1.
        """
        log_p_T = self.log_p[0][nodes[1]]
        for log_p, log_b, nodes_T, contexts_T in zip(self.log_p[1:], self.log_b, nodes[2:], contexts[1:]):
            backed_off_T = log_p_T + np.where(contexts_T >= 0, take(log_b, contexts_T), 0)
            log_p_T = np.where(nodes_T >= 0, take(log_p, nodes_T), backed_off_T)
        return log_p_T

    def _stream_nodes(self, tokens_T: np.ndarray, span: Span) -> Iterator[tuple[list[np.ndarray], list[np.ndarray]]]:
        """Yields the nodes and contexts of the words in `span`, in batches of bounded size."""
        for block in blocks(len(span), _WORDS):
            part = Span(span.start + block.start, span.start + block.stop)
            nodes = self.table.nodes(with_history(tokens_T, part, self.n), self.n)
            yield [x[self.n :] for x in nodes], [x[self.n - 1 : -1] for x in nodes[: self.n]]

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """See `LanguageModel.next_word`."""
        contexts = self.table.context_nodes(contexts_BxN, self.n)
        log_p_BxV = np.tile(self.log_p[0], (len(contexts_BxN), 1))
        for length in range(1, self.n):
            contexts_B = contexts[length]
            log_p_BxV += np.where(contexts_B >= 0, take(self.log_b[length - 1], contexts_B), 0)[:, None]
            rows, words, nodes = self.table.successors(length + 1, contexts_B)
            log_p_BxV[rows, words] = self.log_p[length][nodes]
        return log_p_BxV.astype(np.float32)


def take(values: Values, nodes: np.ndarray) -> np.ndarray:
    """Returns the value of each node. For node -1, or if there are no values, the result is meaningless."""
    return values[nodes] if len(values) else np.zeros(nodes.shape)


def renumber(model: BackoffModel, new_ids_V: np.ndarray) -> BackoffModel:
    """Returns the model with new word ids.

    Args:
        model: The model.
        new_ids_V: The new id of each word, 0, 1, ... without gaps. Words with the same new id are merged, and so are
            their n-grams. A merged n-gram keeps log p and log b of the first of the original n-grams.
    """
    size, new_size = model.table.vocabulary_size, int(new_ids_V.max()) + 1
    nodes, keys, first = np.zeros(1, np.int64), [], []  # the new node of each n-gram; the old node of each new n-gram
    for k in range(1, model.n + 1):
        packed = nodes[model.table.prefixes(k)] * new_size + new_ids_V[model.table.keys[k - 1] % size]
        packed, indices, nodes = np.unique(packed, return_index=True, return_inverse=True)
        keys.append(packed)
        first.append(indices)
    log_p, log_b = ([array[i] for array, i in zip(arrays, first)] for arrays in (model.log_p, model.log_b))
    return BackoffModel(NgramTable(new_size, tuple(keys)), log_p, log_b)
