"""The form that all back-off and interpolated n-gram models share once estimated.

P(w | h) = p(h w) if the n-gram h w is in the table, else b(h) P(w | h without its oldest word),
with b(h) = 1 for a context that is in no table.
"""

from __future__ import annotations

import jax
import numpy as np

from nplm_jax.data.corpora import Span
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.ngram.counts import NgramTable


class BackoffModel(LanguageModel):
    """An n-gram model in back-off form; answers the LanguageModel protocol.

    log_p[k-1]: log p of each n-gram of order k, float64, one a node of the table; nats.
    log_b[k-1]: log b of each context of length k, k = 1..n-1, one a node of order k; nats.
    The order n is len(log_p); the table may hold longer n-grams, which are not used.
    """

    def __init__(self, table: NgramTable, log_p: list[np.ndarray], log_b: list[np.ndarray]):
        self.table = table
        self.log_p = log_p
        self.log_b = log_b

    @property
    def n(self) -> int:
        return len(self.log_p)

    def score(self, tokens_T: jax.Array | np.ndarray, span: Span) -> np.ndarray:
        """log P(w_t | the n-1 words before it) for each t in `span`. float32, nats."""
        nodes, contexts = self.table.stream_nodes(tokens_T, span, self.n)
        scores_T = self.log_p[0][nodes[1]]
        for log_p, log_b, node_T, context_T in zip(self.log_p[1:], self.log_b, nodes[2:], contexts[1:]):
            backed_off_T = scores_T + np.where(context_T >= 0, log_b[context_T], 0)
            scores_T = np.where(node_T >= 0, log_p[node_T], backed_off_T)
        return scores_T.astype(np.float32)

    def matched_lengths(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """Returns the length of the longest n-gram of the table that ends at each word of `span`."""
        lengths_T = np.ones(len(span), int)
        for k, nodes_T in enumerate(self.table.stream_nodes(tokens_T, span, self.n)[0][2:], start=2):
            lengths_T[nodes_T >= 0] = k
        return lengths_T

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """log P(w | context) for all words; contexts in reading order. float32, B x V, nats."""
        contexts = self.table.context_nodes(contexts_BxN, self.n)
        scores_BxV = np.tile(self.log_p[0], (len(contexts_BxN), 1))
        for length in range(1, self.n):
            context_B = contexts[length]
            scores_BxV += np.where(context_B >= 0, self.log_b[length - 1][context_B], 0)[:, None]
            rows, words, nodes = self.table.successors(length + 1, context_B)
            scores_BxV[rows, words] = self.log_p[length][nodes]
        return scores_BxV.astype(np.float32)
