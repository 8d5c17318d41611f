"""Mixtures of language models, weighted in the three ways of the paper's section 4.

Dims: M models, T words of a span, B contexts, V vocabulary, Q bins that each have their own weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import jax
import numpy as np

from nplm_jax.data.corpora import Span
from nplm_jax.models.language_model import LanguageModel, join_lines
from nplm_jax.utils.errors import require


class Bins(Protocol):
    """What picks the weight vector: a bin of each context."""

    num_bins: int
    num_context: int  # words of a context that the bin depends on

    def of_stream(self, tokens_T: jax.Array | np.ndarray, span: Span) -> np.ndarray:
        """The bin of the context of each word of `span`. Integers of len(span)."""
        ...

    def of_contexts(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """The bin of each context in reading order. Integers, B."""
        ...


class OneBin:
    """The same weights whatever the context."""

    num_bins = 1
    num_context = 0

    def of_stream(self, tokens_T: jax.Array | np.ndarray, span: Span) -> np.ndarray:
        return np.zeros(len(span), np.int64)

    def of_contexts(self, contexts_BxN: np.ndarray) -> np.ndarray:
        return np.zeros(len(contexts_BxN), np.int64)


class Mixture(LanguageModel):
    """P(w | h) = sum over models i of weights[bin of h, i] P_i(w | h); answers the LanguageModel protocol.

    weights_QxM: float64; each row sums to one.
    """

    def __init__(self, models: Sequence[LanguageModel], weights_QxM: np.ndarray, bins: Bins):
        self.models = tuple(models)
        self.weights_QxM = weights_QxM
        self.bins = bins

    @property
    def n(self) -> int | None:
        """The largest order of the models; None when one of them has none."""
        orders = [model.n for model in self.models]
        return None if None in orders else max(orders)

    def score(self, tokens_T: jax.Array | np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.score`."""
        log_weights_MxT = _log(self.weights_QxM).T[:, self.bins.of_stream(tokens_T, span)]
        return _mix(_scores(self.models, tokens_T, span), log_weights_MxT)

    def score_lines(self, lines: Sequence[np.ndarray]) -> list[np.ndarray]:
        """See `LanguageModel.score_lines`."""
        stream_T, places = join_lines(lines, self.bins.num_context)
        log_weights_MxT = _log(self.weights_QxM).T[:, self.bins.of_stream(stream_T, Span(0, len(stream_T)))]
        scores = zip(*(model.score_lines(lines) for model in self.models))
        return [_mix(np.stack(log_p), log_weights_MxT[:, place]) for log_p, place in zip(scores, places)]

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """log P(w | context) for all words; contexts in reading order. float32, B x V, nats."""
        log_p_MxBxV = np.stack([m.next_word(contexts_BxN) for m in self.models])
        log_weights_MxB = _log(self.weights_QxM).T[:, self.bins.of_contexts(contexts_BxN)]
        return _mix(log_p_MxBxV, log_weights_MxB[:, :, None])


class CachedScores(LanguageModel):
    """A model whose scores of each span are computed once: what several mixtures of it need. Not for new tokens."""

    def __init__(self, model: LanguageModel):
        self._model = model
        self._scores: dict[Span, np.ndarray] = {}

    @property
    def n(self) -> int | None:
        """See `LanguageModel.n`."""
        return self._model.n

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """See `LanguageModel.next_word`."""
        return self._model.next_word(contexts_BxN)

    def score(self, tokens_T: jax.Array | np.ndarray, span: Span) -> np.ndarray:
        """What the model answers, remembered by span."""
        if span not in self._scores:
            self._scores[span] = self._model.score(tokens_T, span)
        return self._scores[span]


def equal(models: Sequence[LanguageModel]) -> Mixture:
    """The mixture with fixed equal weights (section 4.2: 0.5 for the network and for the trigram)."""
    return Mixture(models, np.full((1, len(models)), 1 / len(models)), OneBin())


def fit(
    models: Sequence[LanguageModel],
    tokens_T: jax.Array | np.ndarray,
    valid: Span,
    bins: Bins | None = None,
    iterations: int = 50,
) -> Mixture:
    """The mixture whose weights EM found on the validation words, starting from equal ones.

    One weight vector, or with `bins` one a bin: the interpolated trigram's `bins` weigh by the frequency of the
    context, as the paper does.
    """
    require(len(models) > 0, 'models', models, 'a mixture needs one model or more')
    bins = bins or OneBin()
    log_p_MxT = _scores(models, tokens_T, valid)
    return Mixture(models, fit_weights(log_p_MxT, bins.of_stream(tokens_T, valid), bins.num_bins, iterations), bins)


def paper_mixtures(
    models: Sequence[LanguageModel], tokens_T: jax.Array | np.ndarray, valid: Span, bins: Bins
) -> tuple[Mixture, Mixture, Mixture]:
    """The paper's: with equal weights, with one learned weight vector, and with one a bin."""
    return equal(models), fit(models, tokens_T, valid), fit(models, tokens_T, valid, bins)


def fit_weights(log_p_MxT: np.ndarray, bins_T: np.ndarray, num_bins: int, iterations: int) -> np.ndarray:
    """EM for the weights of each bin: the mean posterior of each model over the words of the bin.

    Bins without a word get the weights that EM finds for all words together. Words to which every model gives
    probability zero count for nothing. Returns: float64, Q x M, rows that sum to one.
    """
    possible_T = np.isfinite(log_p_MxT.max(0))
    log_p_MxT, bins_T = log_p_MxT[:, possible_T].astype(np.float64), bins_T[possible_T]
    weights_QxM = _em(log_p_MxT, bins_T, num_bins, iterations)
    empty_Q = np.bincount(bins_T, minlength=num_bins) == 0
    if empty_Q.any():
        weights_QxM[empty_Q] = _em(log_p_MxT, np.zeros_like(bins_T), 1, iterations)
    return weights_QxM


def _em(log_p_MxT: np.ndarray, bins_T: np.ndarray, num_bins: int, iterations: int) -> np.ndarray:
    num_models = len(log_p_MxT)
    weights_MxQ = np.full((num_models, num_bins), 1 / num_models)
    words_Q = np.bincount(bins_T, minlength=num_bins)
    p_MxT = np.exp(log_p_MxT - log_p_MxT.max(0, initial=-np.inf))  # up to a factor a word, which cancels
    for _ in range(iterations):
        joint_MxT = weights_MxQ[:, bins_T] * p_MxT
        joint_MxT /= joint_MxT.sum(0)
        sums_MxQ = np.stack([np.bincount(bins_T, posterior_T, num_bins) for posterior_T in joint_MxT])
        weights_MxQ = np.where(words_Q > 0, sums_MxQ / np.maximum(words_Q, 1), weights_MxQ)
    return weights_MxQ.T.copy()


def _scores(models: Sequence[LanguageModel], tokens_T: jax.Array | np.ndarray, span: Span) -> np.ndarray:
    return np.stack([m.score(tokens_T, span) for m in models])


def _mix(log_p: np.ndarray, log_weights: np.ndarray) -> np.ndarray:
    """log of the weighted sum over the first axis, in float64."""
    return np.logaddexp.reduce(log_p + log_weights, axis=0).astype(np.float32)


def _log(weights: np.ndarray) -> np.ndarray:
    with np.errstate(divide='ignore'):
        return np.log(weights)
