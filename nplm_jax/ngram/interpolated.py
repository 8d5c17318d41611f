"""The paper's interpolated trigram (section 4.1; Jelinek & Mercer, 1980)."""

import dataclasses
import math
from typing import Self

import numpy as np

from nplm_jax.data.stream import Span
from nplm_jax.models import mixture
from nplm_jax.ngram.backoff import BackoffModel
from nplm_jax.ngram.counts import LineMarks, NgramCounts, NgramTable, count
from nplm_jax.ngram.shared_scratch import SharedScratch
from nplm_jax.ngram.unsmoothed import unsmoothed_backoff

EM_ITERATIONS = 5  # as in the paper


@dataclasses.dataclass(eq=False)
class FrequencyBins(mixture.ContextBins):
    """Bins of contexts, determined by the frequency of their last two words in training.

    The bin is ceil(-log((1 + x) / T)), where x is the frequency of the context and T is the number of training words.
    Bin 0 holds the most frequent contexts, and the last bin holds the contexts that do not occur in training. If lines
    are read separately, the last bin also holds the contexts at the start of a line.

    Attributes:
        table: The n-grams. The nodes of order 2 are the contexts.
        bins: The bin of each node of order 2, followed by the bin of contexts that are not in the table. int64.
        num_bins: The number of bins.
    """

    table: NgramTable
    bins: np.ndarray
    num_bins: int
    num_context = 2

    @classmethod
    def from_counts(cls, counts: NgramCounts) -> Self:
        """Computes the bins from counts of order 3 or more."""
        frequencies = counts.totals(3)
        num_words = counts.counts[0].sum()
        # The last entry is for node -1: a pair of words that is not in the table.
        ratios = (1 + np.append(frequencies, 0)) / num_words
        bins = np.maximum(np.ceil(-np.log(ratios)), 0).astype(np.int64)
        return cls(counts.table, bins, max(math.ceil(math.log(num_words)), 0) + 1)

    def of_contexts(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """Returns the int64 bin of the last two words of each context in reading order."""
        return self.bins[self.table.context_nodes(contexts_BxN, 3)[2]]


def fit(
    tokens_T: np.ndarray,
    train: Span,
    valid: Span,
    vocabulary_size: int,
    iterations: int = EM_ITERATIONS,
    marks: LineMarks | None = None,
) -> mixture.Mixture:
    """Counts the training words and estimates the weights by EM on the validation words, starting from equal weights.

    P(w | u v) = a0(q) / |V| + a1(q) p1(w) + a2(q) p2(w | v) + a3(q) p3(w | u v), where q is the bin of u v, and p1, p2
    and p3 are relative frequencies in training. If the context of p3 does not occur in training, p2 replaces p3; if the
    context of p2 does not occur, p1 replaces p2. All four components, and thus their mixture, sum to one for every
    context. Bins without validation words get the weights estimated by EM on all validation words together. If `marks`
    say that lines are read separately, the first word of a line has the context v = `<p>`, without u.

    Deviation: the paper does not say which estimate replaces p3. A value of zero would lose probability mass and bias
        every mixture. On Brown, a value of zero gives perplexities of 346.5 (valid) and 317.2 (test). This model gives
        344.0 and 315.2.

    Returns:
        The mixture. Its `weights_QxM` are a(q), four weights per bin; its `bins` can be reused by other mixtures.
    """
    counts = count(tokens_T, train, 3, vocabulary_size, SharedScratch(), marks)
    uniform = BackoffModel(counts.table, [np.full(vocabulary_size, -math.log(vocabulary_size))], [])
    models = [uniform, *(unsmoothed_backoff(counts, n) for n in (1, 2, 3))]
    return mixture.fit(models, tokens_T, valid, FrequencyBins.from_counts(counts), iterations)
