"""Computes the log-probability of each word in a text. Lines are scored independently or as one continuous stream.

Dims: T words in a line, N words in a context.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from nplm_jax.data.line_start import LineStart
from nplm_jax.data.stream import RARE_ID, Span
from nplm_jax.inference.perplexity import check_not_nan
from nplm_jax.models.language_model import LanguageModel, join_lines
from nplm_jax.models.open_vocabulary import OpenVocabulary

LOG_10 = math.log(10)
_NO_CONTEXT = LineStart()


@dataclasses.dataclass(frozen=True)
class Line:
    """The scores of one line.

    Attributes:
        ids_T: The word ids, int32.
        log10_p_T: log10 P of each word given the previous words, float64.
        lengths_T: The length of the n-gram with which the model predicts each word, an integer. The n-gram includes
            the predicted word.
    """

    ids_T: np.ndarray
    log10_p_T: np.ndarray
    lengths_T: np.ndarray


@dataclasses.dataclass(frozen=True)
class Totals:
    """Totals over lines, named as in KenLM.

    Attributes:
        tokens: The number of words.
        oovs: The number of out-of-vocabulary words, which the model reads as the rare-word symbol.
        log10_p: The sum of log10 P over all words.
        log10_p_known: The sum of log10 P over vocabulary words.
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
        """The perplexity of vocabulary words. Their contexts may contain out-of-vocabulary words."""
        return _perplexity(self.log10_p_known, self.tokens - self.oovs)


def score(
    model: LanguageModel, lines: Sequence[np.ndarray], start: LineStart = _NO_CONTEXT, stream: bool = False
) -> list[Line]:
    """Scores lines of word ids, independently or as one stream.

    Args:
        model: Any language model.
        lines: Word ids of each line, int32.
        start: The context that is read but not scored, before each line or once before the stream. By default, it is
            empty, and models pad the context of the first words with rare-word symbols. The commands use
            `LineStart.of(vocabulary)`.
        stream: Whether each line continues the previous line, as in a corpus. Otherwise, each line is scored
            independently.

    Returns:
        The scores of each line, in the order of `lines`.

    Raises:
        NonFiniteError: A log-probability is NaN.
    """
    if not len(lines):
        return []
    if stream:
        prefixes = [start.before(np.concatenate(lines)), *(np.zeros(0, np.int32) for _ in lines[1:])]
    else:
        prefixes = [start.before(line) for line in lines]
    prefixed = [np.concatenate([prefix, line]) for prefix, line in zip(prefixes, lines)]
    stream_T, slices = join_lines(prefixed, 0 if stream else (model.n or 1) - 1)
    if not stream:
        log_p = model.score_lines(prefixed)
    else:
        log_p_T = model.score(stream_T, Span(0, len(stream_T))) if len(stream_T) else np.zeros(0)
        log_p = [log_p_T[part] for part in slices]
    lengths_T = model.matched_lengths(stream_T, Span(0, len(stream_T))) if len(stream_T) else np.zeros(0, int)
    scored = []
    for line, prefix, log_p_T, part in zip(lines, prefixes, log_p, slices):
        check_not_nan(log_p_T[len(prefix) :], part.start + len(prefix))
        # An n-gram cannot begin before the first word of its line or stream, so its length is limited to that word.
        reach_T = np.arange(part.start if stream else 0, part.stop if stream else len(log_p_T)) + 1
        lengths = np.minimum(lengths_T[part], reach_T)[len(prefix) :]
        scored.append(Line(line, log_p_T[len(prefix) :].astype(np.float64) / LOG_10, lengths))
    return scored


def score_words(
    model: OpenVocabulary, lines: Sequence[Sequence[str]], start: LineStart = _NO_CONTEXT, stream: bool = False
) -> list[Line]:
    """Scores lines of words, including the spellings of out-of-vocabulary words.

    The score of an out-of-vocabulary word is the sum of two log-probabilities: that of the rare-word symbol in its
    context, and that of the spelling. All other words are scored as in `score`.

    Args:
        model: An open-vocabulary model.
        lines: The words in each line.
        start: See `score`.
        stream: See `score`.
    """
    encoded = [model.vocabulary.encode(line) for line in lines]
    return [
        dataclasses.replace(line, log10_p_T=line.log10_p_T + model.log_spellings(words) / LOG_10)
        for line, words in zip(score(model.model, encoded, start, stream), lines)
    ]


def total(lines: Iterable[Line]) -> Totals:
    """Sums the word counts and log-probabilities of scored lines."""
    parts = [(np.zeros(0, np.int32), np.zeros(0)), *((line.ids_T, line.log10_p_T) for line in lines)]
    ids_T, log10_p_T = map(np.concatenate, zip(*parts))
    known_T = ids_T != RARE_ID
    return Totals(len(ids_T), int((~known_T).sum()), float(log10_p_T.sum()), float(log10_p_T[known_T].sum()))


def _perplexity(log10_p: float, words: int) -> float:
    if not words:
        return math.nan
    mean = -log10_p / words
    return 10**mean if mean < 308 else math.inf
