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
from nplm_jax.inference.perplexity import check_numbers
from nplm_jax.models.language_model import LanguageModel, join_lines

LOG_10 = math.log(10)


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


def score(model: LanguageModel, lines: Sequence[np.ndarray], prefix: Sequence[int] | None = ()) -> list[Line]:
    """Scores lines of word ids.

    Args:
        model: Any model.
        lines: Word ids of each line, int32.
        prefix: Ids that stand before each line and are not scored; the words before them are unknown. None lets each
            line continue from the line before.

    Returns:
        The scores of each line.

    Raises:
        finite.NonFiniteError: A log-probability is not a number.
    """
    if prefix is None:
        stream_T, places = join_lines(lines, 0)
        log_p_T = model.score(stream_T, Span(0, len(stream_T))) if len(stream_T) else np.zeros(0)
        log_p = [log_p_T[place] for place in places]
        reach = [np.arange(place.start, place.stop) + 1 for place in places]
    else:
        prefixed = [np.concatenate([np.asarray(prefix, np.int32), line]) for line in lines]
        log_p = [log_p_T[len(prefix) :] for log_p_T in model.score_lines(prefixed)]
        stream_T, places = join_lines(prefixed, (model.n or 1) - 1)
        places = [slice(place.start + len(prefix), place.stop) for place in places]
        reach = [np.arange(len(prefix), len(prefix) + len(line)) + 1 for line in lines]
    lengths_T = model.matched_lengths(stream_T, Span(0, len(stream_T))) if len(stream_T) else np.zeros(0, int)
    for log_p_T, place in zip(log_p, places):
        check_numbers(log_p_T, place.start)
    return [
        Line(line, log_p_T.astype(np.float64) / LOG_10, np.minimum(lengths_T[place], reach_T))
        for line, log_p_T, place, reach_T in zip(lines, log_p, places, reach)
    ]


def total(lines: Sequence[Line]) -> Totals:
    """The sums over lines."""
    ids_T, log10_p_T = (np.concatenate(x) for x in zip(*((line.ids_T, line.log10_p_T) for line in lines)))
    known_T = ids_T != RARE_ID
    return Totals(len(ids_T), int((~known_T).sum()), float(log10_p_T.sum()), float(log10_p_T[known_T].sum()))


def _perplexity(log10_p: float, words: int) -> float:
    if not words:
        return math.nan
    mean = -log10_p / words
    return 10**mean if mean < 308 else math.inf
