"""A back-off model over the words of another vocabulary, so that it can be mixed with models of that vocabulary.

Dims: V words of the outer vocabulary, A words of the back-off model's, B contexts, T words of a span.
"""

from typing import Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nplm_jax.data.corpora import Span
from nplm_jax.data.vocabulary import RARE_ID, Vocabulary
from nplm_jax.models.language_model import LanguageModel, check_contexts
from nplm_jax.models.ngram.backoff import BackoffModel
from nplm_jax.models.ngram.counts import check_ids, with_history

_BLOCK = 256  # contexts whose A probabilities are summed at once, which bounds the memory


class MappedModel(LanguageModel):
    """P(w | h) of a back-off model, over other words; the probabilities sum to one.

    A word that both vocabularies have keeps its probability. The words that only the outer vocabulary has, and its
    rare-word symbol, share the probability of the inner rare-word symbol (`<unk>`) evenly. The rare-word symbol also
    gets the probabilities of all words that only the inner vocabulary has. In contexts the words that only the outer
    vocabulary has are the inner rare-word symbol.

    Attributes:
        inner: The back-off model.
        inner_ids_V: The inner id of each outer word, int64; RARE_ID for a word that the inner vocabulary lacks.
    """

    def __init__(self, inner: BackoffModel, inner_ids_V: np.ndarray) -> None:
        self.inner = inner
        self.n = inner.n
        self.inner_ids_V = check_ids(inner_ids_V, inner.table.vocabulary_size)
        self._is_shared_V = self.inner_ids_V == RARE_ID
        self._log_share = -np.log(self._is_shared_V.sum())
        self._only_inner = np.setdiff1d(np.arange(1, inner.table.vocabulary_size), self.inner_ids_V)

    @classmethod
    def between(cls, inner: BackoffModel, inner_vocabulary: Vocabulary, vocabulary: Vocabulary) -> Self:
        """Returns the model over the words of `vocabulary`.

        Args:
            inner: The model.
            inner_vocabulary: Its vocabulary.
            vocabulary: The other one.
        """
        return cls(inner, inner_vocabulary.encode(vocabulary.words).astype(np.int64))

    def score_span(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.score_span`."""
        N = self.inner.n - 1
        words_L = with_history(tokens_T, span, N)
        inner_L = self.inner_ids_V[check_ids(words_L, len(self.inner_ids_V))]
        log_p_T = self.inner.score(inner_L, Span(N, len(inner_L)))
        log_p_T += np.where(self._is_shared_V[words_L[N:]], self._log_share, 0).astype(np.float32)
        rare = np.flatnonzero(words_L[N:] == RARE_ID)
        contexts_TxN = sliding_window_view(inner_L, N)[: len(span)] if N else np.zeros((len(span), 0), np.int64)
        for block in np.split(rare, range(_BLOCK, len(rare), _BLOCK)):
            log_p_T[block] = self._rare_log_p(self.inner.next_word(contexts_TxN[block]))
        return log_p_T

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """See `LanguageModel.next_word`."""
        contexts_BxN = check_ids(check_contexts(contexts_BxN), len(self.inner_ids_V))
        inner_BxA = self.inner.next_word(self.inner_ids_V[contexts_BxN])
        log_p_BxV = inner_BxA[:, self.inner_ids_V]
        log_p_BxV[:, self._is_shared_V] += np.float32(self._log_share)
        log_p_BxV[:, RARE_ID] = self._rare_log_p(inner_BxA)
        return log_p_BxV

    def matched_lengths(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.matched_lengths`."""
        return self.inner.matched_lengths(self.inner_ids_V[np.asarray(tokens_T)], span)

    def _rare_log_p(self, inner_BxA: np.ndarray) -> np.ndarray:
        """Returns log P of the rare-word symbol from log P of all inner words. float32, B."""
        p_BxA = np.exp(inner_BxA[:, self._only_inner].astype(np.float64))
        share_B = np.exp(inner_BxA[:, RARE_ID].astype(np.float64) + self._log_share)
        with np.errstate(divide='ignore'):
            return np.log(p_BxA.sum(1) + share_B).astype(np.float32)
