"""The paper's interpolated trigram (section 4.1; Jelinek & Mercer, 1980)."""

from __future__ import annotations

import math

import jax
import numpy as np

from nplm_jax.data.corpora import Span
from nplm_jax.models import mixture
from nplm_jax.models.ngram.backoff import BackoffModel
from nplm_jax.models.ngram.counts import NgramCounts, count
from nplm_jax.models.ngram.unsmoothed import shorter_when_unseen

EM_ITERATIONS = 5  # the paper's


class FrequencyBins:
    """Bins of contexts by how often the last two words stood before a training word.

    The bin is l(x) = ceil(-log((1 + x) / T)), x the frequency of the context and T the training words: bin 0
    holds the most frequent contexts, the last one those never seen.
    """

    num_context = 2

    def __init__(self, counts: NgramCounts):
        self.table = counts.table
        frequencies = counts.totals(3)
        num_words = frequencies.sum()
        # The last one is for node -1: a pair of words that is not in the table.
        ratios = (1 + np.append(frequencies, 0)) / num_words
        self._bins = np.maximum(np.ceil(-np.log(ratios)), 0).astype(np.int64)
        self.num_bins = max(math.ceil(math.log(num_words)), 0) + 1

    def of_stream(self, tokens_T: jax.Array | np.ndarray, span: Span) -> np.ndarray:
        """The bin of the two words before each word of `span`. int64."""
        return self._bins[self.table.stream_nodes(tokens_T, span, 3)[1][2]]

    def of_contexts(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """The bin of the last two words of each context in reading order. int64, B."""
        return self._bins[self.table.context_nodes(contexts_BxN, 3)[2]]


class InterpolatedTrigram(mixture.Mixture):
    """P(w | u v) = a0(q) / |V| + a1(q) p1(w) + a2(q) p2(w | v) + a3(q) p3(w | u v), q the bin of u v.

    p1, p2, p3 are relative frequencies in training. Where the context of p3 was never seen, p2 stands in its
    place, and p1 in the place of p2: all four sum to one for every context, so their mixture does.
    Deviation: the paper does not say what stands there. Zero would lose mass, and an unfair share of every mixture:
    on Brown it gives 346.5 and 317.2 on valid and test, where this, which sums to one, gives 344.0 and 315.2.
    weights_QxM: a(q), four a bin. bins: the FrequencyBins, by which other mixtures can be weighted too.
    """


def fit(
    tokens_T: jax.Array | np.ndarray,
    train: Span,
    valid: Span,
    vocabulary_size: int,
    iterations: int = EM_ITERATIONS,
) -> InterpolatedTrigram:
    """Counts the training words and finds the weights by EM on the validation words, from equal ones.

    A bin that no validation word falls into gets the weights that suit all validation words together.
    """
    counts = count(tokens_T, train, 3, vocabulary_size)
    uniform = BackoffModel(counts.table, [np.full(vocabulary_size, -math.log(vocabulary_size))], [])
    models = [uniform, *(shorter_when_unseen(counts, n) for n in (1, 2, 3))]
    fitted = mixture.fit(models, tokens_T, valid, FrequencyBins(counts), iterations)
    return InterpolatedTrigram(fitted.models, fitted.weights_QxM, fitted.bins)
