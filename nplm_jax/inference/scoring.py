"""How likely texts are to a model, word by word: lines on their own or as one stream, and the totals of them.

Dims: T words of a line, N words of a context.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from nplm_jax.data.corpora import Span
from nplm_jax.data.vocabulary import RARE_ID
from nplm_jax.inference import perplexity as evaluation
from nplm_jax.models.language_model import LanguageModel, RecurrentLanguageModel
from nplm_jax.models.mixture import Mixture
from nplm_jax.models.ngram.backoff import BackoffModel

LOG_10 = math.log(10)
LINES = 64  # that a recurrent network reads side by side


@dataclasses.dataclass(frozen=True)
class Line:
    """What a model makes of one line of words."""

    ids_T: np.ndarray  # int32
    log10_p_T: np.ndarray  # float64, of each word after those before it
    lengths_T: np.ndarray  # of the n-gram that predicts each word, itself included


@dataclasses.dataclass(frozen=True)
class Totals:
    """What many lines come to, in KenLM's terms."""

    tokens: int
    oovs: int  # words outside the vocabulary; to the model one word, the rare-word symbol
    log10_p: float
    log10_p_known: float  # of the words in the vocabulary alone

    @property
    def perplexity(self) -> float:
        return _perplexity(self.log10_p, self.tokens)

    @property
    def perplexity_known(self) -> float:
        """That of the words in the vocabulary; their contexts may hold others."""
        return _perplexity(self.log10_p_known, self.tokens - self.oovs)


def score(model: LanguageModel, n: int, lines: Sequence[np.ndarray], begin: Sequence[int] | None = None) -> list[Line]:
    """Scores lines of ids.

    n: the order of the model, n-1 words of context. begin: ids that stand before each line and are not scored, after
    n-1 rare-word symbols as before a stream; None lets each line go on from the one before.
    """
    before_N = np.zeros(0, np.int32)
    if begin is not None:
        before_N = np.array([*[RARE_ID] * (n - 1), *begin], np.int32)[-max(n - 1, len(begin)) :]
    stream_T = np.concatenate([part for line in lines for part in (before_N, line)], dtype=np.int32)
    span = Span(0, len(stream_T))
    if not len(span):
        return [Line(np.zeros(0, np.int32), np.zeros(0), np.zeros(0, int)) for _ in lines]
    given = len(begin or ())
    if begin is None:
        log_p_T = model.score(stream_T, span)
    else:
        sizes = [len(before_N) + len(line) for line in lines]
        log_p_T = _log_p_of_lines(model, stream_T, sizes, len(before_N) - given)
    evaluation.check_numbers(log_p_T, 0)
    log10_p_T = log_p_T.astype(np.float64) / LOG_10
    lengths_T = _matched(model, n, stream_T, span)
    scored, end = [], 0
    for line in lines:
        start = end + len(before_N)
        end = start + len(line)
        reach_T = np.arange(start, end) + 1 - (0 if begin is None else start - given)
        scored.append(Line(line, log10_p_T[start:end], np.minimum(lengths_T[start:end], reach_T)))
    return scored


def total(lines: Sequence[Line]) -> Totals:
    """The sums over lines."""
    ids_T, log10_p_T = (np.concatenate(x) for x in zip(*((line.ids_T, line.log10_p_T) for line in lines)))
    known_T = ids_T != RARE_ID
    return Totals(len(ids_T), int((~known_T).sum()), float(log10_p_T.sum()), float(log10_p_T[known_T].sum()))


def _log_p_of_lines(model: LanguageModel, stream_T: np.ndarray, lengths: Sequence[int], rare: int) -> np.ndarray:
    """log P of each word of the stream, nats. lengths: of its lines, `rare` rare-word symbols in front included.

    These keep the line before out of a window, but not out of a recurrent network's state: it reads each line alone.
    """
    span = Span(0, len(stream_T))
    if isinstance(model, Mixture):
        each = np.stack([_log_p_of_lines(m, stream_T, lengths, rare) for m in model.models])
        return model.combine(each, stream_T, span)
    if not isinstance(model, RecurrentLanguageModel):
        return model.score(stream_T, span)
    log_p_T, stops = np.zeros(len(stream_T)), np.cumsum(lengths)
    spans = [slice(stop - length + rare, stop) for stop, length in zip(stops, lengths)]
    spans.sort(key=lambda s: s.stop - s.start)
    for first in range(0, len(spans), LINES):  # lines about as long together
        some = spans[first : first + LINES]
        longest = some[-1].stop - some[-1].start
        lines_BxT = np.full((LINES, -(-longest // 16) * 16), RARE_ID, np.int32)
        for line_T, s in zip(lines_BxT, some):
            line_T[: s.stop - s.start] = stream_T[s]
        for scored_T, s in zip(model.score_lines(lines_BxT), some):
            log_p_T[s] = scored_T[: s.stop - s.start]
    return log_p_T


def _matched(model: LanguageModel, n: int, stream_T: np.ndarray, span: Span) -> np.ndarray:
    """The longest n-gram that a back-off model has for each word; n for others, all words for a recurrent network."""
    lengths_T = np.full(len(span), len(span) if isinstance(model, RecurrentLanguageModel) else n)
    if isinstance(model, BackoffModel):
        lengths_T[:] = 1
        for k, nodes_T in enumerate(model.table.stream_nodes(stream_T, span, model.n)[0][2:], start=2):
            lengths_T[nodes_T >= 0] = k
    return lengths_T


def _perplexity(log10_p: float, words: int) -> float:
    if not words:
        return math.nan
    mean = -log10_p / words
    return 10**mean if mean < 308 else math.inf
