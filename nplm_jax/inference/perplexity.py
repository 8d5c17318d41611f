"""Exact perplexity of any language model over any stream."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import numpy as np

from nplm_jax.data.corpora import Span
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.utils.finite import NonFiniteError


def perplexity(mean_nll: float) -> float:
    """exp of a mean NLL in nats; infinite beyond what a float holds."""
    return math.exp(mean_nll) if mean_nll < 709 else math.inf


class Score(NamedTuple):
    """How well a span was predicted."""

    words: int
    nll: float  # total, nats
    impossible: int = 0  # words that had probability zero; one of them makes the perplexity infinite

    @property
    def mean_nll(self) -> float:
        return self.nll / self.words

    @property
    def perplexity(self) -> float:
        """exp(total NLL / words); infinite where a word had probability zero."""
        return perplexity(self.mean_nll)


def evaluate(model: LanguageModel, tokens_T: jax.Array | np.ndarray, span: Span) -> Score:
    """Predicts every word of `span` once, the first ones from the words before the span; sums in float64.

    Raises: NonFiniteError where a log-probability is not a number.
    """
    log_probabilities = model.score(tokens_T, span)
    check_numbers(log_probabilities, span.start)
    impossible = int(np.sum(np.isneginf(log_probabilities)))
    return Score(len(span), -float(np.sum(log_probabilities, dtype=np.float64)), impossible)


def check_numbers(log_probabilities: np.ndarray, start: int) -> None:
    """Raises: NonFiniteError where one is not a number. start: the place of the first in the stream."""
    if (undefined := np.isnan(log_probabilities)).any():
        where = f'{undefined.sum():,} words, first the one at {start + undefined.argmax():,}'
        raise NonFiniteError(f'the log-probabilities of {where}, are not numbers')
