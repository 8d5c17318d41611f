"""Exact perplexity of any language model over any stream."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nplm_jax.data.corpora import Span
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.utils.errors import NonFiniteError


def perplexity(nll_per_word: float) -> float:
    """Returns exp of a mean negative log-likelihood in nats; infinite beyond the largest float."""
    return math.exp(nll_per_word) if nll_per_word < 709 else math.inf


class Score(NamedTuple):
    """How well a model predicts a span.

    Attributes:
        words: Number of predicted words.
        nll: Total negative log-likelihood, nats.
        impossible: Number of words with probability zero; one such word makes the perplexity infinite.
    """

    words: int
    nll: float
    impossible: int = 0

    @property
    def nll_per_word(self) -> float:
        """Negative log-likelihood per word, nats."""
        return self.nll / self.words

    @property
    def perplexity(self) -> float:
        """exp(total NLL / words); infinite where a word has probability zero."""
        return perplexity(self.nll_per_word)


def evaluate(model: LanguageModel, tokens_T: np.ndarray, span: Span) -> Score:
    """Predicts every word of `span` once, the first words from those before the span; sums in float64.

    Raises:
        NonFiniteError: A log-probability is not a number.
    """
    log_p_T = model.score(tokens_T, span)
    check_not_nan(log_p_T, span.start)
    return Score(len(span), -float(np.sum(log_p_T, dtype=np.float64)), int(np.sum(np.isneginf(log_p_T))))


def check_not_nan(log_p_T: np.ndarray, start: int) -> None:
    """Checks log-probabilities, which may be -inf.

    Args:
        log_p_T: Log-probabilities of consecutive words.
        start: The position of the first of these words in the stream, for the message.

    Raises:
        NonFiniteError: One of them is not a number.
    """
    if (is_nan_T := np.isnan(log_p_T)).any():
        words = f'{is_nan_T.sum():,} words, first the one at {start + is_nan_T.argmax():,}'
        raise NonFiniteError(f'the log-probabilities of {words}, are not numbers')
