"""Base class of models that adapt: they predict a word from all words before it, and are made to score streams.

Dims: B contexts, N words of a context, V vocabulary.
"""

import numpy as np

from nplm_jax.data.stream import Span
from nplm_jax.models.language_model import LanguageModel, check_contexts


class AdaptiveModel(LanguageModel):
    """A language model whose subclasses define `score_span`; `next_word` follows from it.

    Attributes:
        vocabulary_size: V.
    """

    n = None
    vocabulary_size: int

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """See `LanguageModel.next_word`. It scores each context V times, with each word after it."""
        contexts_BxN = check_contexts(contexts_BxN, self.vocabulary_size)
        whole = Span(0, contexts_BxN.shape[1] + 1)
        words = range(self.vocabulary_size)
        return np.array([[self.score_span(np.append(c_N, w), whole)[-1] for w in words] for c_N in contexts_BxN])
