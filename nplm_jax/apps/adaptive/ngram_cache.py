"""An n-gram cache, which estimates P(w | h) from the counts of recent words.

Use the cache in a mixture with any model. The estimates are interpolated:

    P_0 = 1 / V, P_k(w | h) = (c(h_k, w) + a P_{k-1}(w | h)) / (c(h_k) + a),

where h_k are the last k - 1 words of h, and c counts n-grams among the remembered words.

Dims: T words in a span, V vocabulary.

References:
    Kuhn and De Mori, A cache-based natural language model for speech recognition, 1990.
    MacKay and Peto, A hierarchical Dirichlet language model, 1995 (the interpolation).
"""

import collections
from collections.abc import Sequence

import numpy as np

from nplm_jax.apps.adaptive.adaptive_model import AdaptiveModel
from nplm_jax.data.stream import Span


class NgramCache(AdaptiveModel):
    """A language model that depends only on the recent words in the stream.

    Attributes:
        order: The order of the longest n-grams in the cache. 1 results in a unigram cache.
        num_remembered: The number of recent words whose n-grams are counted.
        concentration: The weight a of the estimate from the shorter context, in words.
    """

    def __init__(self, vocabulary_size: int, order: int, num_remembered: int, concentration: float) -> None:
        self.vocabulary_size = vocabulary_size
        self.order, self.num_remembered, self.concentration = order, num_remembered, concentration

    def score_span(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.score_span`. The cache also contains the words before the span."""
        first = max(0, span.start - self.num_remembered - self.order)
        words = np.asarray(tokens_T[first : span.stop]).tolist()
        ngrams: collections.Counter[tuple[int, ...]] = collections.Counter()
        contexts: collections.Counter[tuple[int, ...]] = collections.Counter()
        p_T = np.full(len(words), 1 / self.vocabulary_size)

        def count(t: int, amount: int) -> None:
            for context in self._contexts(words, t):
                for counter, key in ((ngrams, (*context, words[t])), (contexts, context)):
                    counter[key] += amount
                    if not counter[key]:
                        del counter[key]  # keeps the memory bounded

        for t, word in enumerate(words):
            for context in self._contexts(words, t):
                if total := contexts[context]:
                    p_T[t] = (ngrams[*context, word] + self.concentration * p_T[t]) / (total + self.concentration)
            count(t, 1)
            if t >= self.num_remembered:
                count(t - self.num_remembered, -1)
        return np.log(p_T[span.start - first :]).astype(np.float32)

    def _contexts(self, words: Sequence[int], t: int) -> list[tuple[int, ...]]:
        """Returns the contexts of word t, from shortest to longest."""
        return [tuple(words[t - k : t]) for k in range(min(self.order - 1, t) + 1)]
