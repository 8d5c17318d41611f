"""Scores words in CTC beam search with language models and hotwords."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from nplm_jax.inference.scoring import LOG_10
from nplm_jax.kenlm import model as kenlm
from nplm_jax.ngram.sentence_marks import BEGIN, END, UNKNOWN
from nplm_jax.utils.errors import require

_MARKS = {UNKNOWN, BEGIN, END}
_FREE_LENGTH = 6  # characters; longer partial unknown words have a penalty in proportion to their length


def check_number(name: str, value: Any, most: float = math.inf) -> None:
    """Raises BadInput with the key `name` unless `value` is a number no greater than `most`."""
    is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    allowed = 'must be a number' if most == math.inf else f'must be a number less than or equal to {most}'
    require(is_number and value <= most, name, value, allowed)


def check_finite(name: str, value: Any) -> None:
    """Raises BadInput with the key `name` unless `value` is a finite number."""
    check_number(name, value)
    require(math.isfinite(value), name, value, 'must be finite')


def check_strings(name: str, values: Any) -> list[str]:
    """Returns `values` as a list. Raises BadInput with the key `name` unless they are strings."""
    is_list = isinstance(values, Iterable) and not isinstance(values, (str, bytes))
    strings = list(values) if is_list else []
    require(is_list and all(isinstance(value, str) for value in strings), name, values, 'must be a list of strings')
    return strings


class WordScorer:
    """A language model that scores complete words and penalizes partial words that are not prefixes of known words.

    Attributes:
        model: The language model.
        alpha: The weight of log P of the words.
        beta: The score added for each word.
        unk_score_offset: The score added to log10 P of an unknown word, and to the score of a partial unknown word.
        score_boundary: Whether to start in the sentence-initial state and score the end of the sentence.
        words: The words that count as known.
    """

    alpha: float
    beta: float
    unk_score_offset: float

    def __init__(
        self,
        model: kenlm.Model,
        unigrams: Iterable[str] | None = None,
        alpha: float = 0.5,
        beta: float = 1.5,
        unk_score_offset: float = -10.0,
        score_boundary: bool = True,
    ) -> None:
        """Creates a scorer. See `build_ctcdecoder`, whose argument `lm_score_boundary` is `score_boundary` here."""
        allowed = 'must be an ARPA file or a run whose tokens are words, not subwords, characters or bytes'
        require(not model.has_subwords, 'model', model, allowed)
        self.model = model
        known_words = check_strings('unigrams', model.vocabulary if unigrams is None else unigrams)
        is_exhausted = not known_words and isinstance(unigrams, Iterator)
        require(not is_exhausted, 'unigrams', unigrams, 'is an exhausted iterator; pass a list instead')
        words = {*known_words} - _MARKS
        self._known = sorted(word for word in words if word in model)
        known = bool(self._known) or not words
        require(known, 'unigrams', next(iter(words), ''), 'must contain a word in the vocabulary of the model')
        self.words = frozenset(self._known)
        self.set_weights(score_boundary, alpha=alpha, beta=beta, unk_score_offset=unk_score_offset)

    @property
    def order(self) -> int | None:
        """The order n of the model, whose contexts have n - 1 words. None for a model with unlimited context."""
        return self.model.order

    def set_weights(self, score_boundary: bool, **weights: float) -> None:
        """Sets `score_boundary` and any of `alpha`, `beta` and `unk_score_offset`.

        Raises:
            BadInput: A number is not finite, or `score_boundary` is True and the model has no end-of-sentence token.
        """
        for name, value in weights.items():
            check_finite(name, value)
            setattr(self, name, float(value))
        require(isinstance(score_boundary, bool), 'lm_score_boundary', score_boundary, 'must be True or False')
        allowed = 'the model has no end-of-sentence token; pass lm_score_boundary=False'
        require(not score_boundary or END in self.model, 'lm_score_boundary', score_boundary, allowed)
        self.score_boundary = score_boundary

    def get_start_state(self) -> kenlm.State:
        """Returns the state at the beginning of a text."""
        state = kenlm.State()
        begin = self.model.BeginSentenceWrite if self.score_boundary else self.model.NullContextWrite
        begin(state)
        return state

    def look_up(self, states: Sequence[kenlm.State]) -> None:
        """Computes the predictions of a network for several states in one batch, and stores them for `log_p`."""
        self.model.look_up(states)

    def log_p(self, state: kenlm.State, word: str) -> tuple[float, kenlm.State]:
        """Returns log P of a word after a state, in nats, and the next state."""
        after = kenlm.State()
        log10_p = max(self.model.BaseScore(state, word, after), -1e30)  # finite, because alpha may be 0
        if (self.words and word not in self.words) or word not in self.model:
            log10_p += self.unk_score_offset
        return log10_p * LOG_10, after

    def end_log_p(self, state: kenlm.State) -> float:
        """Returns log P of the end of the sentence, in nats. Returns 0 if boundaries are not scored."""
        if not self.score_boundary:
            return 0.0
        return max(self.model.BaseScore(state, END, kenlm.State()), -1e30) * LOG_10

    def score_partial_token(self, partial: str) -> float:
        """Returns the score of a partial word: 0 if it is a prefix of a known word, and the penalty otherwise."""
        index = bisect.bisect_left(self._known, partial)
        if index < len(self._known) and self._known[index].startswith(partial):
            return 0.0
        return self.unk_score_offset * max(1.0, len(partial) / _FREE_LENGTH)


class WordCounter:
    """A scorer for decoding without a language model, which adds a constant score for each word.

    Attributes:
        beta: The score added for each word.
    """

    alpha, order = 0.0, 1

    def __init__(self, beta: float = 0.0) -> None:
        """Creates the scorer."""
        self.beta = beta

    def get_start_state(self) -> Any:
        """Returns None, the only state."""
        return None

    def look_up(self, states: Sequence[Any]) -> None:
        """Does nothing, because there are no predictions to compute."""

    def log_p(self, state: Any, word: str) -> tuple[float, Any]:
        """Returns 0 and None, the only state."""
        return 0.0, None

    def end_log_p(self, state: Any) -> float:
        """Returns 0, because the ends of sentences are not scored."""
        return 0.0

    def score_partial_token(self, partial: str) -> float:
        """Returns 0, because no word is unknown."""
        return 0.0


Scorer = WordScorer | WordCounter


class Hotwords:
    """Words whose scores are raised. If the weight is negative, the scores are lowered.

    Attributes:
        words: The words.
        prefix_boosts: The provisional boost of each prefix of a hotword: the weight times the fraction of the hotword
            that the prefix covers. If several hotwords share a prefix, the shortest hotword determines its boost. Empty
            if the weight is not positive.
    """

    def __init__(self, hotwords: Iterable[str] | None = None, weight: float = 10.0) -> None:
        """Splits the hotwords, which may be phrases, into words.

        Raises:
            BadInput: `hotwords` is not a list of strings, or `weight` is not a finite number.
        """
        phrases = [] if hotwords is None else check_strings('hotwords', hotwords)
        check_finite('hotword_weight', weight)
        self._weight = weight
        self.words = {word: None for phrase in phrases for word in phrase.split()}
        self.prefix_boosts: dict[str, float] = {}
        for word in sorted(self.words, key=len) if weight > 0 else ():
            for length in range(1, len(word) + 1):
                self.prefix_boosts.setdefault(word[:length], weight * length / len(word))

    def score(self, word: str) -> float:
        """Returns the score of a complete word: the weight for a hotword, and 0 for other words."""
        return self._weight if word in self.words else 0.0
