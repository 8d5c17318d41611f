"""Count-based models with little or no smoothing: baselines for the other models, and teaching material."""

import jax
import numpy as np

from nplm_jax.data.corpora import Span
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.ngram.backoff import BackoffModel
from nplm_jax.models.ngram.counts import NgramCounts
from nplm_jax.utils.errors import require


class AddDelta(LanguageModel):
    """P(w | h) = (c(h w) + delta) / (c(h) + delta |V|) with contexts h of n-1 words.

    With delta=0 this is maximum likelihood: a word that never follows a seen context has probability zero (-inf). A
    context that does not occur in training gives the uniform distribution, which is the limit for a small delta.
    """

    def __init__(self, counts: NgramCounts, delta: float = 0.0) -> None:
        require(delta >= 0, 'delta', delta, 'must be 0 (maximum likelihood) or more')
        self.counts = counts
        self.delta = delta
        self._totals = counts.totals(counts.table.n)

    @property
    def n(self) -> int:
        """See `LanguageModel.n`."""
        return self.counts.table.n

    def score(self, tokens_T: jax.Array | np.ndarray, span: Span) -> np.ndarray:
        """Returns log P(w_t | the n-1 words before it) for each t in `span`. float32, nats."""
        table = self.counts.table
        nodes, contexts = table.stream_nodes(tokens_T, span, table.n)
        counts_T = np.where(nodes[-1] >= 0, self.counts.counts[-1][nodes[-1]], 0)
        return self._log_p(counts_T, contexts[-1])

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """Returns log P(w | context) for all words; contexts in reading order. float32, B x V, nats."""
        table = self.counts.table
        contexts_B = table.context_nodes(contexts_BxN, table.n)[-1]
        rows, words, nodes = table.successors(table.n, contexts_B)
        counts_BxV = np.zeros((len(contexts_B), table.vocabulary_size))
        counts_BxV[rows, words] = self.counts.counts[-1][nodes]
        return self._log_p(counts_BxV, contexts_B[:, None])

    def _log_p(self, counts: np.ndarray, contexts: np.ndarray) -> np.ndarray:
        """Returns log P of words of these counts after these context nodes. float32, nats."""
        size = self.counts.table.vocabulary_size
        totals = np.where(contexts >= 0, self._totals[contexts], 0)
        with np.errstate(divide='ignore', invalid='ignore'):
            p = (counts + self.delta) / (totals + self.delta * size)
            return np.log(np.where(totals > 0, p, 1 / size)).astype(np.float32)


def unsmoothed_backoff(counts: NgramCounts, n: int | None = None) -> BackoffModel:
    """Estimates relative frequencies after the longest context, of at most n-1 words, that occurs in training.

    P(w | h) = c(h w) / c(h) where c(h) > 0, else P(w | h without its oldest word). The probabilities sum to one; a
    word that never follows the context has probability zero (-inf).

    Args:
        counts: Counts of order n or more.
        n: The order of the model; None for the order of the counts.
    """
    n = n or counts.table.n
    with np.errstate(divide='ignore', invalid='ignore'):
        log_p = [np.log(counts.counts[0] / counts.totals(1))]
        log_b = []
        for k in range(2, n + 1):
            totals = counts.totals(k)
            contexts = counts.table.prefixes(k)
            seen = np.log(counts.counts[k - 1] / totals[contexts])
            # No counted word follows a context that only stands before the span.
            log_p.append(np.where(totals[contexts] > 0, seen, log_p[-1][counts.suffixes[k - 1]]))
            log_b.append(np.where(totals > 0, -np.inf, 0.0))
    return BackoffModel(counts.table, log_p, log_b)
