"""Log-probabilities of texts, word by word: lines one by one or as one stream, and their totals.

Dims: T words of a line, N words of a context.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from nplm_jax.data.corpora import Span
from nplm_jax.data.vocabulary import RARE_ID
from nplm_jax.inference.perplexity import check_not_nan
from nplm_jax.models.language_model import LanguageModel, join_lines

LOG_10 = math.log(10)


@dataclasses.dataclass(frozen=True)
class Line:
    """The scores of one line.

    Attributes:
        ids_T: the ids of its words, int32.
        log10_p_T: log10 P of each word given the words before it, float64.
        lengths_T: the length of the n-gram that predicts each word, the word included.
    """

    ids_T: np.ndarray
    log10_p_T: np.ndarray
    lengths_T: np.ndarray


@dataclasses.dataclass(frozen=True)
class Totals:
    """The sums over lines, in KenLM's terms.

    Attributes:
        tokens: the number of words.
        oovs: the number of words outside the vocabulary, which the model reads as the rare-word symbol.
        log10_p: the sum over all words.
        log10_p_known: the sum over the words in the vocabulary.
    """

    tokens: int
    oovs: int
    log10_p: float
    log10_p_known: float

    @property
    def perplexity(self) -> float:
        """The perplexity of all words."""
        return _perplexity(self.log10_p, self.tokens)

    @property
    def perplexity_known(self) -> float:
        """The perplexity of the words in the vocabulary; their contexts may hold words outside it."""
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
        NonFiniteError: A log-probability is not a number.
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
        check_not_nan(log_p_T, place.start)
    return [
        Line(line, log_p_T.astype(np.float64) / LOG_10, np.minimum(lengths_T[place], reach_T))
        for line, log_p_T, place, reach_T in zip(lines, log_p, places, reach)
    ]


def total(lines: Sequence[Line]) -> Totals:
    """Returns the sums over lines."""
    ids_T, log10_p_T = (np.concatenate(x) for x in zip(*((line.ids_T, line.log10_p_T) for line in lines)))
    known_T = ids_T != RARE_ID
    return Totals(len(ids_T), int((~known_T).sum()), float(log10_p_T.sum()), float(log10_p_T[known_T].sum()))


def _perplexity(log10_p: float, words: int) -> float:
    if not words:
        return math.nan
    mean = -log10_p / words
    return 10**mean if mean < 308 else math.inf
