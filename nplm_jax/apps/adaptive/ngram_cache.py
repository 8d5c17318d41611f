"""The n-gram cache: P(w | h) from the counts of the last words alone. Mix it with any model.

P_0 = 1 / V; P_k(w | h) = (c(h_k, w) + a P_{k-1}(w | h)) / (c(h_k) + a), where h_k is the last k - 1 words and c counts
n-grams among the words that are remembered. Dims: T words of a span, B contexts, N words of a context, V vocabulary.

References:
    Kuhn and De Mori, A cache-based natural language model for speech recognition, 1990.
    MacKay and Peto, A hierarchical Dirichlet language model, 1995: the interpolation.
"""

import collections
from collections.abc import Sequence

import numpy as np

from nplm_jax.data.corpora import Span
from nplm_jax.models.language_model import LanguageModel, check_contexts


class NgramCache(LanguageModel):
    """A language model that knows the last words of the stream and nothing else.

    Attributes:
        order: The longest n-gram that is counted; 1 for a unigram cache.
        num_remembered: Number of last words whose n-grams are counted.
        concentration: a, the weight of the shorter context in words.
    """

    n = None

    def __init__(self, vocabulary_size: int, order: int, num_remembered: int, concentration: float) -> None:
        self._vocabulary_size = vocabulary_size
        self.order, self.num_remembered, self.concentration = order, num_remembered, concentration

    def score_span(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.score_span`. The cache holds the words before the span, too."""
        first = max(0, span.start - self.num_remembered - self.order)
        words = np.asarray(tokens_T[first : span.stop]).tolist()
        counts, p_T = _Counts(self), np.empty(len(span))
        for t, word in enumerate(words):
            if first + t >= span.start:
                p_T[first + t - span.start] = counts.probability(words, t, word)
            counts.read(words, t)
        return np.log(p_T).astype(np.float32)

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """See `LanguageModel.next_word`."""
        log_p_BxV = np.empty((len(contexts_BxN), self._vocabulary_size), np.float32)
        for log_p_V, words in zip(log_p_BxV, check_contexts(contexts_BxN).tolist()):
            counts = _Counts(self)
            for t in range(len(words)):
                counts.read(words, t)
            log_p_V[:] = np.log(counts.distribution(words, self._vocabulary_size))
        return log_p_BxV


class _Counts:
    """Counts of the n-grams that end in one of the last words: for each context, how often each word followed."""

    def __init__(self, cache: NgramCache) -> None:
        self._cache = cache
        self._followers: collections.defaultdict[tuple[int, ...], dict[int, int]] = collections.defaultdict(dict)
        self._totals: collections.Counter[tuple[int, ...]] = collections.Counter()

    def read(self, words: Sequence[int], t: int) -> None:
        """Counts word t of a stream, and forgets the word that is no longer among the last ones."""
        self._add(words, t, 1)
        if (oldest := t - self._cache.num_remembered) >= 0:
            self._add(words, oldest, -1)

    def _add(self, words: Sequence[int], t: int, amount: int) -> None:
        for context in self._contexts(words, t):
            followers = self._followers[context]
            followers[words[t]] = followers.get(words[t], 0) + amount
            self._totals[context] += amount
            if not followers[words[t]]:
                del followers[words[t]]
            if not followers:
                del self._followers[context], self._totals[context]

    def _contexts(self, words: Sequence[int], t: int) -> list[tuple[int, ...]]:
        """Returns the contexts of word t, from the empty one on."""
        return [tuple(words[t - k : t]) for k in range(min(self._cache.order - 1, t) + 1)]

    def probability(self, words: Sequence[int], t: int, word: int) -> float:
        """Returns P(word) as word t of a stream."""
        p = 1 / self._cache._vocabulary_size
        for context in self._contexts(words, t):
            if context in self._totals:
                count = self._followers[context].get(word, 0)
                p = (count + self._cache.concentration * p) / (self._totals[context] + self._cache.concentration)
        return p

    def distribution(self, words: Sequence[int], vocabulary_size: int) -> np.ndarray:
        """Returns P of all words as the next word of a stream, float64, V."""
        p_V = np.full(vocabulary_size, 1 / vocabulary_size)
        for context in self._contexts(words, len(words)):
            if context in self._totals:
                p_V *= self._cache.concentration
                followers = self._followers[context]
                p_V[list(followers)] += list(followers.values())
                p_V /= self._totals[context] + self._cache.concentration
        return p_V
