"""Computes the exact perplexity of language models.

Dims: T words in a span.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nplm_jax.data.stream import Span
from nplm_jax.data.text_checks import has_words
from nplm_jax.inference.loaded_model import LoadedModel, model_of
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.utils.errors import NonFiniteError, require

if TYPE_CHECKING:
    from nplm_jax.data.dataset import TextSize

# Maximum number of spans in a sample. The streams of truncated back-propagation are also evenly spaced, and usually a
# power of two. With 16 spans, a whole sample of training words would be read by the same few updates.
_SAMPLE_PARTS = 25


def perplexity(model: LoadedModel | LanguageModel, tokens_T: np.ndarray, span: Span | None = None) -> float:
    """Returns the exact perplexity of a model on a stream of words: exp(total NLL / number of predicted words).

    Args:
        model: A loaded model, or any language model, such as a mixture.
        tokens_T: The word ids of the stream, such as `data.tokens_T` or `vocabulary.encode(words)`.
        span: The positions of the words to predict, such as `data.valid`. Each word is predicted from the previous
            words in the stream, including words before the span. None selects all words.

    Returns:
        The perplexity, or infinity if a word has probability zero.

    Raises:
        BadInput: The span is not a Span, is empty, or extends beyond the stream.
        NonFiniteError: A log-probability is NaN.
    """
    span = Span(0, len(tokens_T)) if span is None else span
    is_valid = isinstance(span, Span) and span.start < span.stop
    require(is_valid, 'span', span, 'must be a Span with at least one word to predict')
    return evaluate(model_of(model), tokens_T, span).perplexity


def nll_to_perplexity(nll_per_word: float) -> float:
    """Converts a mean NLL per word, in nats, to the perplexity exp(nll_per_word). Returns infinity on overflow.

    Examples:
        >>> round(nll_to_perplexity(math.log(250)), 6)  # every word had probability 1 / 250
        250.0
    """
    return math.exp(nll_per_word) if nll_per_word < 709 else math.inf


def per_unit(nll: float, size: 'TextSize') -> dict[str, float]:
    """Converts a total negative log-likelihood to perplexity per word, bits per character and bits per byte.

    Unlike perplexities per token, these values are comparable between models with different tokens.

    Args:
        nll: The total negative log-likelihood over all tokens, nats.
        size: The number of words, characters and bytes in the text.

    Returns:
        A dict with the keys `perplexity_per_word`, `bits_per_character` and `bits_per_byte`. All values are NaN for an
        empty text. The perplexity per word is also NaN if the text has no spaces between words.

    Examples:
        >>> from nplm_jax.data.dataset import TextSize
        >>> per_unit(8 * math.log(2), TextSize(tokens=6, words=8, characters=8, utf8_bytes=16))
        {'perplexity_per_word': 2.0, 'bits_per_character': 1.0, 'bits_per_byte': 0.5}
    """
    bits, are_words = nll / math.log(2), has_words(size.words, size.characters)
    return {
        'perplexity_per_word': nll_to_perplexity(nll / size.words) if are_words else math.nan,
        'bits_per_character': bits / size.characters if size.characters else math.nan,
        'bits_per_byte': bits / size.utf8_bytes if size.utf8_bytes else math.nan,
    }


class Score(NamedTuple):
    """The negative log-likelihood (NLL) of a span of words under a model, from which the perplexity is computed.

    Attributes:
        words: The number of predicted words.
        nll: The total negative log-likelihood, nats.
        impossible: The number of words to which the model assigns probability zero. A single such word makes the
            perplexity infinite.
        nll_error: The standard error of `nll_per_word` if only a sample of the span was predicted, nats. It is 0 if
            every word was predicted.
    """

    words: int
    nll: float
    impossible: int = 0
    nll_error: float = 0.0

    @property
    def nll_per_word(self) -> float:
        """The mean negative log-likelihood per word, in nats."""
        return self.nll / self.words

    @property
    def perplexity(self) -> float:
        """The perplexity exp(total NLL / words). It is infinite if a word has probability zero."""
        return nll_to_perplexity(self.nll_per_word)

    @property
    def standard_error(self) -> float:
        """The standard error of the perplexity, approximated to first order by perplexity * `nll_error`."""
        return self.perplexity * self.nll_error


def evaluate(model: LanguageModel, tokens_T: np.ndarray, span: Span) -> Score:
    """Scores a model on all words in `span`.

    Each word is predicted once, given all previous words in the stream. The log-probabilities are summed in float64.

    Raises:
        NonFiniteError: A log-probability is NaN.
    """
    return summarize(model.score(tokens_T, span), span)


def summarize(log_p_T: np.ndarray, span: Span) -> Score:
    """Computes the score of a span from the log-probabilities of its words. Raises NonFiniteError if one is NaN."""
    check_not_nan(log_p_T, span.start)
    return Score(len(span), -float(np.sum(log_p_T, dtype=np.float64)), int(np.sum(np.isneginf(log_p_T))))


def evaluate_sample(model: LanguageModel, tokens_T: np.ndarray, span: Span, num_words: int) -> Score:
    """Scores a model on a sample of the words in `span`.

    The sample consists of up to 25 evenly spaced spans of equal length; see `sample_spans`. The standard error of the
    result treats these spans as independent observations.

    Args:
        model: The language model to score.
        tokens_T: Word ids of the stream.
        span: The positions of the words to sample from.
        num_words: The maximum number of words in the sample. If it is 0, all words in the span are predicted.

    Raises:
        NonFiniteError: A log-probability is NaN.
    """
    if not 0 < num_words < len(span):
        return evaluate(model, tokens_T, span)
    scores = [evaluate(model, tokens_T, part) for part in sample_spans(span, num_words)]
    parts = len(scores)
    means = [score.nll_per_word for score in scores]
    share_left_out = 1 - sum(score.words for score in scores) / len(span)
    error = math.inf  # if there is only one span, or if a word has probability zero
    if parts > 1 and all(map(math.isfinite, means)):
        error = float(np.std(means, ddof=1)) * math.sqrt(share_left_out / parts)
    return Score(
        words=sum(score.words for score in scores),
        nll=sum(score.nll for score in scores),
        impossible=sum(score.impossible for score in scores),
        nll_error=error,
    )


def sample_spans(span: Span, num_words: int) -> list[Span]:
    """Returns up to 25 spans of equal length, evenly spaced, with at most `num_words` words in total.

    Args:
        span: The positions of the words to sample from.
        num_words: The maximum number of words, at least 1. If `span` has at most this many words, the only result is
            `span` itself.

    Examples:
        >>> sample_spans(Span(100, 350), 50)[:2]
        [Span(start=100, stop=102), Span(start=110, stop=112)]
    """
    if num_words >= len(span):
        return [span]
    parts = min(_SAMPLE_PARTS, num_words)
    starts = (span.start + part * len(span) // parts for part in range(parts))
    return [Span(start, start + num_words // parts) for start in starts]


def check_not_nan(log_p_T: np.ndarray, start: int) -> None:
    """Checks that no log-probability is NaN. Words with probability zero, whose log-probability is -inf, are allowed.

    Args:
        log_p_T: Log-probabilities of consecutive words.
        start: The position in the stream of the first of these words, for the error message.

    Raises:
        NonFiniteError: A log-probability is NaN.
    """
    if (is_nan_T := np.isnan(log_p_T)).any():
        words = f'{is_nan_T.sum():,} words (first at position {start + is_nan_T.argmax():,})'
        raise NonFiniteError(f'the log-probabilities of {words} are NaN')
