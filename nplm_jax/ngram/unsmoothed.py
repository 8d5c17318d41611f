"""Count-based models with little or no smoothing, for baselines and teaching."""

import numpy as np

from nplm_jax.ngram.backoff import BackoffModel
from nplm_jax.ngram.counts import NgramCounts
from nplm_jax.utils.errors import require


def add_delta(counts: NgramCounts, delta: float = 0.0) -> BackoffModel:
    """Estimates P(w | h) = (c(h w) + delta) / (c(h) + delta |V|) with contexts h of n-1 words, in back-off form.

    delta=0 gives the maximum-likelihood estimate: a word that never follows a context in training has probability zero
    (log P = -inf) after this context. After contexts that do not occur in training, the distribution is uniform, which
    is the limit as delta approaches zero.

    Args:
        counts: Counts of order n.
        delta: The number added to each count, 0 or more.

    Raises:
        BadInput: delta is negative.
    """
    require(delta >= 0, 'delta', delta, 'must be non-negative; 0 gives the maximum-likelihood estimate')
    size, n = counts.table.vocabulary_size, counts.table.n
    # The model is uniform below order n; the back-off weights between these orders are one.
    log_p = [np.full(counts.table.size(k), -np.log(size)) for k in range(1, n + 1)]
    log_b = [np.zeros(counts.table.size(k)) for k in range(1, n)]
    totals, contexts = counts.totals(n), counts.table.prefixes(n)
    with np.errstate(divide='ignore', invalid='ignore'):
        log_p_seen = np.log((counts.counts[-1] + delta) / (totals + delta * size)[contexts])
        log_p[-1] = np.where(totals[contexts] > 0, log_p_seen, -np.log(size))
        if n > 1:
            log_b[-1] = np.where(totals > 0, np.log(delta * size / (totals + delta * size)), 0.0)
    return BackoffModel(counts.table, log_p, log_b)


def unsmoothed_backoff(counts: NgramCounts, n: int | None = None) -> BackoffModel:
    """Estimates relative frequencies given the longest context of at most n-1 words that occurs in training.

    P(w | h) = c(h w) / c(h) where c(h) > 0, else P(w | h without its oldest word). The probabilities sum to one. A
    word that never follows the context has probability zero (log P = -inf).

    Args:
        counts: Counts of order n or more.
        n: The order of the model, or None for the order of the counts.
    """
    n = n or counts.table.n
    with np.errstate(divide='ignore', invalid='ignore'):
        log_p = [np.log(counts.counts[0] / counts.totals(1))]
        log_b = []
        for k in range(2, n + 1):
            totals = counts.totals(k)
            contexts = counts.table.prefixes(k)
            log_p_seen = np.log(counts.counts[k - 1] / totals[contexts])
            # A context that occurs only before the span precedes no counted word, so its total is zero.
            log_p.append(np.where(totals[contexts] > 0, log_p_seen, log_p[-1][counts.suffix_nodes[k - 1]]))
            log_b.append(np.where(totals > 0, -np.inf, 0.0))
    return BackoffModel(counts.table, log_p, log_b)
