"""Implements mixtures of language models, with the three weighting schemes in section 4 of the paper.

Dims: M models, T words in a span, B contexts, V vocabulary, Q bins of contexts.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nplm_jax.data import mapped_arrays
from nplm_jax.data.stream import Span, with_history
from nplm_jax.models.language_model import LanguageModel, State, check_contexts, check_lines, join_lines, last_words
from nplm_jax.models.mixture_fit import fit_weights
from nplm_jax.utils.errors import BadInput, require

ROUNDING = 0.005  # maximum rounding error of a weight printed to two decimal places
Scores: TypeAlias = dict[tuple[str, Span], np.ndarray]  # (digest of the stream, span) -> log P for words in the span
CHUNK_SIZE = 2**16  # number of words scored at once


class ContextBins:
    """A partition of contexts into bins, each of which has its own weight vector. This base class has a single bin.

    Attributes:
        num_bins: The number of bins.
        num_context: The number of preceding words that determine the bin.
    """

    num_bins = 1
    num_context = 0

    def of_contexts(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """Returns the bin of each context, integers, B. Each context is in reading order."""
        return np.zeros(len(contexts_BxN), np.int64)

    def of_stream(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """Returns the bin of the context before each word in `span`, integers, T."""
        words_L = with_history(tokens_T, span, self.num_context)
        return self.of_contexts(sliding_window_view(words_L, self.num_context)[: len(span)])


class MixtureState(NamedTuple):
    """The decoding state of a mixture: the last words, which determine the weights, and the state of each model."""

    contexts_SxN: np.ndarray
    parts: tuple[State, ...]


class Mixture(LanguageModel):
    """A mixture of models: P(w | h) = sum over models i of weights[bin of h, i] P_i(w | h).

    Attributes:
        models: The models, which have equal vocabularies.
        weights_QxM: The weights of each bin, float64. Each row sums to one.
        bins: The partition of contexts into bins.
        n: The largest order among the models, or None if any model has no order.
    """

    def __init__(self, models: Sequence[LanguageModel], weights_QxM: np.ndarray, bins: ContextBins) -> None:
        """Creates a mixture. Raises BadInput if the models' vocabularies differ, or if the weights are invalid."""
        check_models(models)
        shape, weights_QxM = (bins.num_bins, len(models)), np.asarray(weights_QxM, np.float64)
        fits = weights_QxM.shape == shape and (weights_QxM >= 0).all() and (abs(weights_QxM.sum(1) - 1) < 1e-6).all()
        allowed = f'must be a matrix of shape {shape} (bins x models) with non-negative rows that sum to one'
        require(bool(fits), 'weights', weights_QxM.tolist(), allowed)
        self.vocabulary_size = next((m.vocabulary_size for m in models if m.vocabulary_size is not None), None)
        self.vocabulary = next((m.vocabulary for m in models if m.vocabulary is not None), None)
        self.models = tuple(models)
        self.weights_QxM = weights_QxM
        self.bins = bins
        orders = [model.n for model in models if model.n is not None]
        self.n = max(orders) if len(orders) == len(models) else None

    def _describe_size(self) -> str:
        names = [type(model).__name__ for model in self.models[:4]]
        return ' + '.join([*names, f'{len(self.models) - 4} more'] if len(self.models) > 4 else names)

    def score_span(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.score_span`."""
        weights_MxT = self.weights_QxM.T[:, self.bins.of_stream(tokens_T, span)]
        return _log_weighted_sum(_scores(self.models, tokens_T, span), weights_MxT)

    def score_lines(self, lines: Sequence[np.ndarray]) -> list[np.ndarray]:
        """See `LanguageModel.score_lines`."""
        check_lines(lines, self.vocabulary_size)
        stream_T, line_slices = join_lines(lines, self.bins.num_context)
        weights_MxT = self.weights_QxM.T[:, self.bins.of_stream(stream_T, Span(0, len(stream_T)))]
        scores = zip(*(model.score_lines(lines) for model in self.models))
        return [_log_weighted_sum(np.stack(log_p), weights_MxT[:, line]) for log_p, line in zip(scores, line_slices)]

    def matched_lengths(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.matched_lengths`. Returns the greatest length among the models for each word."""
        return np.max([model.matched_lengths(tokens_T, span) for model in self.models], axis=0)

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """See `LanguageModel.next_word`."""
        return self._mix([model.next_word(contexts_BxN) for model in self.models], contexts_BxN)

    def prefill(self, ids_SxL: np.ndarray) -> MixtureState:
        """See `LanguageModel.prefill`."""
        contexts_SxN = last_words(check_contexts(ids_SxL, self.vocabulary_size), self.bins.num_context + 1)
        return MixtureState(contexts_SxN, tuple(model.prefill(ids_SxL) for model in self.models))

    def predict(self, state: MixtureState) -> np.ndarray:
        """See `LanguageModel.predict`."""
        log_p = [np.asarray(model.predict(part)) for model, part in zip(self.models, state.parts)]
        return self._mix(log_p, state.contexts_SxN)

    def advance(self, state: MixtureState, ids_S: jax.Array | np.ndarray) -> MixtureState:
        """See `LanguageModel.advance`. Advances the state of each model, so no model reads a context twice."""
        parts = (model.advance(part, ids_S) for model, part in zip(self.models, state.parts))
        words = np.concatenate([state.contexts_SxN, np.asarray(ids_S)[:, None]], axis=1)
        return MixtureState(words[:, 1:], tuple(parts))

    def read(self, state: MixtureState, ids_SxL: np.ndarray) -> tuple[np.ndarray, MixtureState]:
        """See `LanguageModel.read`."""
        (S, L), N = ids_SxL.shape, self.bins.num_context
        words = np.concatenate([state.contexts_SxN, ids_SxL], axis=1)
        contexts_BxN = sliding_window_view(words, N, axis=1)[:, 1:].reshape(S * L, N)
        log_p, parts = zip(*(model.read(part, ids_SxL) for model, part in zip(self.models, state.parts)))
        mixed_BxV = self._mix([np.asarray(x).reshape(S * L, -1) for x in log_p], contexts_BxN)
        return mixed_BxV.reshape(S, L, -1), MixtureState(words[:, L:], parts)

    def _mix(self, log_p: Sequence[np.ndarray], contexts_BxN: np.ndarray) -> np.ndarray:
        """Combines the log-probabilities of all words under each model. Returns the float32 log P in nats, B x V."""
        weights_MxBx1 = self.weights_QxM.T[:, self.bins.of_contexts(contexts_BxN), None]
        return _log_weighted_sum(np.stack(log_p), weights_MxBx1)


class CachedScores(LanguageModel):
    """A wrapper that caches a model's scores, so that several mixtures can use them without scoring the words again.

    Attributes:
        scores: log P of the words in each span, nats. The keys are pairs (digest of the stream, span).
    """

    def __init__(
        self,
        model: LanguageModel,
        scores: Scores | None = None,
        scored: Callable[[int], Any] = lambda num_words: None,
    ) -> None:
        """Wraps a model.

        Args:
            model: The model whose scores are cached.
            scores: Scores that are already known.
            scored: A function that is called after each step with the number of words scored in this step.
        """
        self._model, self._scored, self.n = model, scored, model.n
        self.vocabulary_size, self.vocabulary = model.vocabulary_size, model.vocabulary
        self.scores = dict(scores or {})
        self._scores_of_lines: dict[tuple[bytes, ...], list[np.ndarray]] = {}
        self._stream: tuple[np.ndarray, str] | None = None
        for name in ('matched_lengths', 'prefill', 'predict', 'advance', 'read'):  # not cached
            setattr(self, name, getattr(model, name))

    def score_span(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.score_span`. Caches the scores for each stream and span."""
        key = self._digest(tokens_T), span
        if key not in self.scores:
            # A model without an order carries a state through the span, so the span is scored in a single step.
            size = CHUNK_SIZE if self.n else max(len(span), 1)
            log_p = [np.zeros(0, np.float32)]
            for first in range(span.start, span.stop, size):
                chunk = Span(first, min(first + size, span.stop))
                log_p.append(self._model.score(tokens_T, chunk))
                self._scored(len(chunk))
            self.scores[key] = np.concatenate(log_p)
        return self.scores[key].copy()

    def add(self, tokens_T: np.ndarray, span: Span, log_p_T: np.ndarray) -> None:
        """Adds known scores of a span to the cache."""
        self.scores[self._digest(tokens_T), span] = log_p_T

    def _digest(self, tokens_T: np.ndarray) -> str:
        """Returns the digest of a stream. The last digest is cached if its stream is a read-only mapped file."""
        tokens_T = np.asanyarray(tokens_T)  # keeps the identity of a mapped file
        is_constant, stream = isinstance(tokens_T, np.memmap) and not tokens_T.flags.writeable, self._stream
        if stream is None or stream[0] is not tokens_T or not is_constant:
            digest = hashlib.sha256(tokens_T.dtype.str.encode())
            for chunk_L in mapped_arrays.chunks(tokens_T):
                digest.update(chunk_L.data)
            self._stream = stream = tokens_T, digest.hexdigest()
        return stream[1]

    def score_lines(self, lines: Sequence[np.ndarray]) -> list[np.ndarray]:
        """See `LanguageModel.score_lines`. Caches the scores for the most recent lines."""
        check_lines(lines, self.vocabulary_size)
        contents = tuple(np.asarray(line, np.int32).tobytes() for line in lines)
        if contents not in self._scores_of_lines:
            self._scores_of_lines = {contents: self._model.score_lines(lines)}
        return [log_p_T.copy() for log_p_T in self._scores_of_lines[contents]]

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """See `LanguageModel.next_word`. Not cached."""
        return self._model.next_word(contexts_BxN)


def check_models(models: Sequence[LanguageModel]) -> None:
    """Raises BadInput unless all values are language models and all known vocabularies are equal.

    Args:
        models: One or more models. Models trained with this package have a `vocabulary_size`, and the model of a
            `LoadedModel` also has a `vocabulary`.
    """
    require(len(models) > 0, 'models', list(models), 'must contain at least one model')
    for i, model in enumerate(models):
        allowed = 'must be a language model, such as `nplm_jax.load(...).model`'
        require(isinstance(model, LanguageModel), f'models[{i}]', type(model).__name__, allowed)
    sizes = [model.vocabulary_size for model in models if model.vocabulary_size is not None]
    require(len({*sizes}) < 2, 'models', sizes, 'must have the same vocabulary; the list shows the vocabulary sizes')
    known = [(i, model.vocabulary) for i, model in enumerate(models) if model.vocabulary is not None]
    for i, vocabulary in known:
        if difference := vocabulary.difference(known[0][1], f'models[{known[0][0]}]'):
            raise BadInput(f'models[{i}]', f'{difference}; all models of a mixture must have the same vocabulary')


def equal(models: Sequence[LanguageModel]) -> Mixture:
    """Creates a mixture with equal weights (section 4.2: 0.5 for the network and 0.5 for the trigram)."""
    return Mixture(models, np.full((1, len(models)), 1 / max(len(models), 1)), ContextBins())


def normalize_weights(key: str, value: Any, weights: Sequence[float]) -> np.ndarray:
    """Rescales user-supplied weights to sum to exactly one.

    Args:
        key: The name of the option that specifies the weights, for error messages.
        value: The value of the option as the user wrote it, for error messages.
        weights: The weight of each model, 0 or more.

    Returns:
        The weights, float64, 1 x M.

    Raises:
        BadInput: A weight is negative, or the sum differs from one by more than ROUNDING per weight.
    """
    weights_1xM = np.array([weights], np.float64)
    close = bool((weights_1xM >= 0).all() and abs(weights_1xM.sum() - 1) <= ROUNDING * len(weights) + 1e-9)
    require(close, key, value, 'must be non-negative and sum to one, up to rounding to two decimal places')
    return weights_1xM / weights_1xM.sum()


def fit(
    models: Sequence[LanguageModel],
    tokens_T: np.ndarray,
    valid: Span,
    bins: ContextBins | None = None,
    iterations: int | None = None,
) -> Mixture:
    """Creates a mixture with the weights that maximize the likelihood of the validation words.

    Args:
        models: One or more models.
        tokens_T: The token ids of the text that contains the span.
        valid: The positions of the validation words in the text.
        bins: The bins of contexts, each of which gets its own weight vector. None for a single weight vector. The paper
            uses the bins of the interpolated trigram, which depend on the frequency of the context.
        iterations: The number of EM iterations, starting from equal weights. If None, the weights are optimal.

    Examples:
        >>> from nplm_jax.ngram.counts import count
        >>> from nplm_jax.ngram.unsmoothed import add_delta
        >>> tokens_T = np.array([1, 2, 1, 2, 1, 2, 1, 2])
        >>> models = [add_delta(count(tokens_T, Span(0, 6), n, 3), 1.0) for n in (1, 2)]
        >>> mixture = fit(models, tokens_T, valid=Span(6, 8))
        >>> mixture.weights_QxM.round(2)  # the bigram predicts the validation words better than the unigram
        array([[0., 1.]])
        >>> np.exp(mixture.next_word(np.array([[1]]))).round(2)
        array([[0.17, 0.17, 0.67]], dtype=float32)
    """
    check_models(models)
    bins = bins or ContextBins()
    log_p_MxT = _scores(models, tokens_T, valid)
    return Mixture(models, fit_weights(log_p_MxT, bins.of_stream(tokens_T, valid), bins.num_bins, iterations), bins)


def paper_mixtures(
    models: Sequence[LanguageModel], tokens_T: np.ndarray, valid: Span, bins: ContextBins
) -> tuple[Mixture, Mixture, Mixture]:
    """Returns the paper's mixtures: equal weights, one learned weight vector, and one learned weight vector per bin."""
    return equal(models), fit(models, tokens_T, valid), fit(models, tokens_T, valid, bins)


def _scores(models: Sequence[LanguageModel], tokens_T: np.ndarray, span: Span) -> np.ndarray:
    """Returns the float32 scores of each model in nats, M x T."""
    return np.stack([m.score(tokens_T, span) for m in models])


def _log_weighted_sum(log_p: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns log(sum of weights * exp(log_p) over the first axis) as float32, computed in float64."""
    with np.errstate(divide='ignore'):
        return np.logaddexp.reduce(log_p + np.log(weights), axis=0).astype(np.float32)
