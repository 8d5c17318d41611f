"""Mixtures of language models, with the three kinds of weights of the paper's section 4.

Dims: M models, T words of a span, B contexts, V vocabulary, Q bins of contexts.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nplm_jax.data import mapped_arrays
from nplm_jax.data.stream import Span, with_history
from nplm_jax.models.language_model import LanguageModel, State, check_lines, join_lines, last_words
from nplm_jax.models.mixture_fit import fit_weights
from nplm_jax.utils.errors import BadInput, require

ROUNDING = 0.005  # of a weight that is printed with two digits
Scores: TypeAlias = dict[tuple[str, Span], np.ndarray]  # log P of the words of spans, by the digest of their stream
PIECE = 2**16  # words that are scored at once


class ContextBins:
    """A partition of contexts into bins with a weight vector each; this base class has one bin for all contexts.

    Attributes:
        num_bins: The number of bins.
        num_context: The number of words of a context that determine its bin.
    """

    num_bins = 1
    num_context = 0

    def of_contexts(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """Returns the bin of each context in reading order. Integers, B."""
        return np.zeros(len(contexts_BxN), np.int64)

    def of_stream(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """Returns the bin of the context of each word of `span`. Integers, T."""
        words_L = with_history(tokens_T, span, self.num_context)
        return self.of_contexts(sliding_window_view(words_L, self.num_context)[: len(span)])


class MixtureState(NamedTuple):
    """Decoding state of a mixture: the last words, which decide the weights, and the state of each model."""

    contexts_SxN: np.ndarray
    parts: tuple[State, ...]


class Mixture(LanguageModel):
    """P(w | h) = sum over models i of weights[bin of h, i] P_i(w | h).

    Attributes:
        models: The models.
        weights_QxM: float64; each row sums to one.
        bins: The bins of the rows.
        n: The largest order of the models; None if one of them has no order.
    """

    def __init__(self, models: Sequence[LanguageModel], weights_QxM: np.ndarray, bins: ContextBins) -> None:
        """Takes the models, weights and bins. Raises BadInput if the models differ in their words."""
        check_models(models)
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

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """See `LanguageModel.next_word`."""
        return self._mix([model.next_word(contexts_BxN) for model in self.models], contexts_BxN)

    def prefill(self, ids_SxL: np.ndarray) -> MixtureState:
        """See `LanguageModel.prefill`."""
        contexts_SxN = last_words(np.asarray(ids_SxL), self.bins.num_context + 1)
        return MixtureState(contexts_SxN, tuple(model.prefill(ids_SxL) for model in self.models))

    def predict(self, state: MixtureState) -> np.ndarray:
        """See `LanguageModel.predict`."""
        log_p = [np.asarray(model.predict(part)) for model, part in zip(self.models, state.parts)]
        return self._mix(log_p, state.contexts_SxN)

    def advance(self, state: MixtureState, ids_S: jax.Array | np.ndarray) -> MixtureState:
        """See `LanguageModel.advance`. Each model keeps its own state, so that none reads a context again."""
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
        """Returns log P of all words by the mixture from that by each model, float32, B x V."""
        weights_MxBx1 = self.weights_QxM.T[:, self.bins.of_contexts(contexts_BxN), None]
        return _log_weighted_sum(np.stack(log_p), weights_MxBx1)


class CachedScores(LanguageModel):
    """A model that keeps its scores of each span and of the last lines, for use in several mixtures.

    Attributes:
        scores: log P of the words of each span of each stream, nats.
    """

    def __init__(
        self,
        model: LanguageModel,
        scores: Scores | None = None,
        scored: Callable[[int], Any] = lambda num_words: None,
    ) -> None:
        """Takes the model, its scores that are already known, and a callback for the number of words of each piece."""
        self._model, self._scored, self.n = model, scored, model.n
        self.vocabulary_size, self.vocabulary = model.vocabulary_size, model.vocabulary
        self.scores = dict(scores or {})
        self._scores_of_lines: dict[tuple[bytes, ...], list[np.ndarray]] = {}
        self._stream: tuple[np.ndarray, str] | None = None

    def score_span(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """Returns the model's scores; those of each stream and span are kept."""
        key = self._digest(tokens_T), span
        if key not in self.scores:
            size = PIECE if self.n else max(len(span), 1)  # without an order, a state runs through the span
            log_p = [np.zeros(0, np.float32)]
            for first in range(span.start, span.stop, size):
                piece = Span(first, min(first + size, span.stop))
                log_p.append(self._model.score(tokens_T, piece))
                self._scored(len(piece))
            self.scores[key] = np.concatenate(log_p)
        return self.scores[key]

    def add(self, tokens_T: np.ndarray, span: Span, log_p_T: np.ndarray) -> None:
        """Takes scores of a span that are already known."""
        self.scores[self._digest(tokens_T), span] = log_p_T

    def _digest(self, tokens_T: np.ndarray) -> str:
        """Returns the digest of a stream, which is computed once for one that cannot be written, as a mapped file."""
        tokens_T = np.asanyarray(tokens_T)  # a mapped file stays the same object
        stream = self._stream
        if stream is None or stream[0] is not tokens_T or tokens_T.flags.writeable:
            digest = hashlib.sha256(tokens_T.dtype.str.encode())
            for part_L in mapped_arrays.parts(tokens_T):
                digest.update(part_L.data)
            self._stream = stream = tokens_T, digest.hexdigest()
        return stream[1]

    def score_lines(self, lines: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Returns the model's scores; those of the last lines are kept."""
        check_lines(lines, self.vocabulary_size)
        contents = tuple(np.asarray(line, np.int32).tobytes() for line in lines)
        if contents not in self._scores_of_lines:
            self._scores_of_lines = {contents: self._model.score_lines(lines)}
        return self._scores_of_lines[contents]

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """See `LanguageModel.next_word`; not cached."""
        return self._model.next_word(contexts_BxN)


def check_models(models: Sequence[LanguageModel]) -> None:
    """Raises BadInput unless these are language models over the same words, as far as the models know them.

    Args:
        models: One model or more. Every model of this package knows V; those of a `LoadedModel` know the words too.
    """
    require(len(models) > 0, 'models', list(models), 'a mixture needs one model or more')
    for i, model in enumerate(models):
        allowed = 'must be a language model, such as the `model` that nplm_jax.load returns'
        require(isinstance(model, LanguageModel), f'models[{i}]', type(model).__name__, allowed)
    sizes = [model.vocabulary_size for model in models if model.vocabulary_size is not None]
    require(len({*sizes}) < 2, 'models', sizes, 'have vocabularies of these sizes; must have one vocabulary')
    known = [(i, model.vocabulary) for i, model in enumerate(models) if model.vocabulary is not None]
    for i, vocabulary in known:
        difference = vocabulary.difference(known[0][1], f'models[{known[0][0]}]')
        if difference:
            raise BadInput(f'models[{i}]', f'{difference}; models of one mixture must have one vocabulary')


def equal(models: Sequence[LanguageModel]) -> Mixture:
    """Mixes models with fixed equal weights (section 4.2: 0.5 for the network and 0.5 for the trigram)."""
    return Mixture(models, np.full((1, len(models)), 1 / max(len(models), 1)), ContextBins())


def normalize_weights(key: str, value: Any, weights: Sequence[float]) -> np.ndarray:
    """Returns the given weights of models, float64, 1 x M, so that they sum to one exactly.

    Args:
        key: What gives the weights, for error messages.
        value: Its value.
        weights: A weight for each model.

    Raises:
        BadInput: A weight is negative, or they do not sum to one up to ROUNDING each.
    """
    weights_1xM = np.array([weights], np.float64)
    close = bool((weights_1xM >= 0).all() and abs(weights_1xM.sum() - 1) <= ROUNDING * len(weights) + 1e-9)
    require(close, key, value, 'must be 0 or more each, and sum to one (up to rounding to two digits)')
    return weights_1xM / weights_1xM.sum()


def fit(
    models: Sequence[LanguageModel],
    tokens_T: np.ndarray,
    valid: Span,
    bins: ContextBins | None = None,
    iterations: int | None = None,
) -> Mixture:
    """Mixes models with the weights that give the validation words the largest likelihood.

    Args:
        models: One model or more.
        tokens_T: Ids of the stream.
        valid: The validation words.
        bins: Bins of contexts, each with its own weight vector; None for one weight vector. The paper uses the bins of
            the interpolated trigram, which depend on the frequency of the context.
        iterations: Number of EM iterations from equal weights; None for the optimum.

    Examples:
        >>> from nplm_jax.ngram.counts import count
        >>> from nplm_jax.ngram.unsmoothed import add_delta
        >>> tokens_T = np.array([1, 2, 1, 2, 1, 2, 1, 2])
        >>> models = [add_delta(count(tokens_T, Span(0, 6), n, 3), 1.0) for n in (1, 2)]
        >>> mixture = fit(models, tokens_T, valid=Span(6, 8))
        >>> mixture.weights_QxM.round(2)  # the bigram predicts the validation words better
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
    """Returns the paper's mixtures: with equal weights, with one learned weight vector, and with one for each bin."""
    return equal(models), fit(models, tokens_T, valid), fit(models, tokens_T, valid, bins)


def _scores(models: Sequence[LanguageModel], tokens_T: np.ndarray, span: Span) -> np.ndarray:
    """Returns the scores of each model. float32, M x T, nats."""
    return np.stack([m.score(tokens_T, span) for m in models])


def _log_weighted_sum(log_p: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Returns log of the sum of `weights` times exp(log_p) over the first axis, computed in float64. float32."""
    with np.errstate(divide='ignore'):
        return np.logaddexp.reduce(log_p + np.log(weights), axis=0).astype(np.float32)
