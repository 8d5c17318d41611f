"""Base class of adaptive models, which predict each word from all preceding words in the stream.

Dims: B contexts, N words in a context, V vocabulary.
"""

import numpy as np

from nplm_jax.data.stream import Span
from nplm_jax.models.language_model import LanguageModel, check_contexts


class AdaptiveModel(LanguageModel):
    """A language model that computes `next_word` with the method `score_span`, which subclasses define.

    Attributes:
        vocabulary_size: The vocabulary size, V.
    """

    n = None
    vocabulary_size: int

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """See `LanguageModel.next_word`. Scores each context V times, once for each possible next word."""
        contexts_BxN = check_contexts(contexts_BxN, self.vocabulary_size)
        whole = Span(0, contexts_BxN.shape[1] + 1)
        words = range(self.vocabulary_size)
        return np.array([[self.score_span(np.append(c_N, w), whole)[-1] for w in words] for c_N in contexts_BxN])
