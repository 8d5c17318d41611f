"""Base class of adaptive models, which predict each word from all preceding words in the stream.

Dims: B contexts, N words in a context, V vocabulary.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from nplm_jax.data.stream import RARE_ID, Span
from nplm_jax.models.language_model import LanguageModel, check_contexts
from nplm_jax.utils.progress import progress_bar

_PART = 10_000  # words that are scored between two updates of the progress bar


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


def score_in_parts(
    score: Callable[..., tuple[Any, Any]], carry: Any, ids_KxB: np.ndarray, targets_KxB: np.ndarray, description: str
) -> np.ndarray:
    """Scores consecutive blocks of words, several at a time, and shows the progress.

    Args:
        score: A function that takes the state before some blocks, and their ids and targets. Returns the state after
            these blocks and the log probabilities of the targets.
        carry: The state before the first block.
        ids_KxB: The word ids of the inputs.
        targets_KxB: The word ids of the targets.
        description: The name of the work.

    Returns:
        log P of each target in nats, float32, K B.
    """
    K, B = ids_KxB.shape
    size = min(K, -(-_PART // B))  # the parts have equal sizes, so that `score` is compiled once
    padded = [np.pad(x, ((0, -K % size), (0, 0)), constant_values=RARE_ID) for x in (ids_KxB, targets_KxB)]
    log_p = []
    with progress_bar(K * B, description, ' words') as bar:
        for first in range(0, K, size):
            carry, part = score(carry, *(x[first : first + size] for x in padded))
            log_p.append(np.asarray(part))
            bar.update(min(size, K - first) * B)
    return np.concatenate(log_p)[:K].reshape(-1)
