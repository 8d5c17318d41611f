"""The protocol of every model; perplexity, mixtures, generation, scoring and tables know only this.

Dims: T words of a stream, B contexts or lines, N words of a context, V vocabulary.
"""

import abc
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from nplm_jax.data.corpora import Span
from nplm_jax.data.vocabulary import RARE_ID
from nplm_jax.utils.errors import require

State = Any  # what a model keeps of the words that it has read


class LanguageModel(abc.ABC):
    """P(w_t | the words before it) over a closed vocabulary of V words.

    A subclass defines `n`, `score` and `next_word`; the other methods then work, and may be overridden to be faster.
    """

    @property
    @abc.abstractmethod
    def n(self) -> int | None:
        """The order: a word is predicted from the n - 1 words before it, or from all when None."""

    @abc.abstractmethod
    def score(self, tokens_T: jax.Array | np.ndarray, span: Span) -> np.ndarray:
        """Returns log P(w_t | w_1 ... w_{t-1}) for each t in `span` of the stream, float32, nats."""

    @abc.abstractmethod
    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """Returns log P(w | context) of all words, float32, B x V, nats.

        Args:
            contexts_BxN: Word ids in reading order, the most recent word last. Contexts may be longer or shorter than
                the model's: the oldest words are ignored, and missing ones are the rare-word symbol.
        """

    def begin(self, contexts_BxN: np.ndarray) -> State:
        """Returns what the model keeps of these words, for `predict` and `advance`."""
        return contexts_BxN

    def predict(self, state: State) -> jax.Array | np.ndarray:
        """Returns log P of all words after those read, B x V, nats."""
        return self.next_word(state)

    def advance(self, state: State, ids_B: jax.Array | np.ndarray) -> State:
        """Returns what the model keeps after one more word."""
        return np.concatenate([state, np.asarray(ids_B)[:, None]], axis=1)

    def score_lines(self, lines: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Returns log P of each word of each line after the words before it in the line, nats.

        The words before a line are unknown: rare-word symbols stand there.
        """
        stream_T, places = join_lines(lines, (self.n or 1) - 1)
        log_p_T = self.score(stream_T, Span(0, len(stream_T)))
        return [log_p_T[place] for place in places]

    def matched_lengths(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """Returns how many words, itself included, the prediction of each word of `span` rests on."""
        return np.full(len(span), self.n or len(span))


def join_lines(lines: Sequence[np.ndarray], num_before: int) -> tuple[np.ndarray, list[slice]]:
    """Returns one stream with `num_before` rare-word symbols before each line, and where each line lies in it."""
    padding = np.full(num_before, RARE_ID, np.int32)
    stream_T = np.concatenate([np.zeros(0, np.int32), *(part for line in lines for part in (padding, line))])
    stops = np.cumsum([num_before + len(line) for line in lines], dtype=int)
    return stream_T.astype(np.int32), [slice(stop - len(line), stop) for line, stop in zip(lines, stops)]


def check_contexts(contexts_BxN: Any) -> np.ndarray:
    """Returns contexts as int32. Raises: BadInput unless they are a matrix, one context a row."""
    contexts_BxN = np.asarray(contexts_BxN)
    require(contexts_BxN.ndim == 2, 'contexts', contexts_BxN.shape, 'must be a matrix of word ids, one context a row')
    return contexts_BxN.astype(np.int32)
