"""What a CTC beam search has met: complete words with their scores, and the parts of words that follow them.

Dims: N labels, B hypotheses, C candidates.
"""

from __future__ import annotations

import abc
import array
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nplm_jax.apps.decoding.ctc_scores import Hotwords, Scorer, check_number
from nplm_jax.utils.errors import require


class Limits(NamedTuple):
    """What the search keeps; see `decode_beams`."""

    beam_width: int
    beam_prune_logp: float
    token_min_logp: float
    prune_history: bool

    def check(self) -> None:
        """Raises BadInput if one is none that is allowed."""
        is_count = isinstance(self.beam_width, (int, np.integer)) and self.beam_width > 0
        require(is_count, 'beam_width', self.beam_width, 'must be 1 or more')
        check_number('beam_prune_logp', self.beam_prune_logp, most=0)
        check_number('token_min_logp', self.token_min_logp)


class Beams(NamedTuple):
    """Hypotheses, best first.

    Attributes:
        text_B: Their texts.
        part_B: Their parts of words.
        last_B: Their labels in the last frame.
        logit_B: Log-probabilities of all their alignments.
        path_B: Log-probabilities of the most probable ones.
    """

    text_B: np.ndarray
    part_B: np.ndarray
    last_B: np.ndarray
    logit_B: np.ndarray
    path_B: np.ndarray


class Candidates(NamedTuple):
    """Hypotheses with one more label.

    Attributes:
        before_C: The places of the hypotheses that they continue.
        label_C: Their labels in the next frame.
        text_C: Their texts.
        part_C: Their parts of words.
    """

    before_C: np.ndarray
    label_C: np.ndarray
    text_C: np.ndarray
    part_C: np.ndarray


class Text:
    """Complete words: `before`, then `word`.

    Attributes:
        number: Its place in `Prefixes.texts`.
        before: The words before the last one; None of no words.
        word: The last word.
        log_p: Log P of the words.
        score: Their score by the model, `alpha` times log P and `beta` for each word.
        bonus: Their score by the hotwords.
        state: The state of the model after them.
        after: The texts with one more word.
    """

    __slots__ = ('after', 'before', 'bonus', 'log_p', 'number', 'score', 'state', 'word')

    def __init__(
        self, number: int, before: Text | None, word: str, log_p: float, score: float, bonus: float, state: Any
    ) -> None:
        self.number, self.before, self.word, self.log_p, self.score = number, before, word, log_p, score
        self.bonus, self.state, self.after = bonus, state, dict[str, Text]()

    def words(self, most: float = math.inf) -> list[str]:
        """Returns the last words, in reading order."""
        words: list[str] = []
        text = self
        while text.before is not None and len(words) < most:
            words.append(text.word)
            text = text.before
        return words[::-1]


class Prefixes(abc.ABC):
    """What a search has met, by number: complete words, and the parts of words that follow them.

    What follows a part, and its score, do not depend on the words before it.

    Attributes:
        lm: The scores of words.
        hotwords: The hotwords.
        blank: The number of CTC's blank.
        num_labels: The number of labels.
        texts: The complete words.
        text_scores: The score of each by the model.
        text_bonuses: The score of each by the hotwords.
        part_scores: The score of each part of a word by the model; the first part is empty.
        part_bonuses: What the hotwords lend to each.
    """

    part_scores: array.array[float] | np.ndarray
    part_bonuses: array.array[float] | np.ndarray

    def __init__(self, lm: Scorer, hotwords: Hotwords, state: Any, blank: int, num_labels: int) -> None:
        self.lm, self.hotwords, self.blank, self.num_labels = lm, hotwords, blank, num_labels
        self.texts = [Text(0, None, '', 0.0, 0.0, 0.0, state)]
        self.text_scores, self.text_bonuses = array.array('d', [0.0]), array.array('d', [0.0])

    @abc.abstractmethod
    def extend(self, beams: Beams, log_p_N: np.ndarray, limits: Limits) -> Candidates:
        """Returns the hypotheses after each label of the next frame that `limits` allows."""

    @abc.abstractmethod
    def ends(self, beams: Beams) -> list[tuple[Text, int]]:
        """Returns the texts of hypotheses at the end of the frames, with the places of these."""

    def complete(self, text: Text, word: str) -> Text:
        """Returns the text with one more word, or itself if the word is empty."""
        if not word:
            return text
        if word not in text.after:
            log_p, state = self.lm.log_p(text.state, word)
            score, bonus = text.score + self.lm.alpha * log_p + self.lm.beta, text.bonus + self.hotwords.score(word)
            text.after[word] = Text(len(self.texts), text, word, text.log_p + log_p, score, bonus, state)
            self.texts.append(text.after[word])
            self.text_scores.append(score)
            self.text_bonuses.append(bonus)
        return text.after[word]

    def complete_all(self, pairs: Sequence[tuple[Text, str]]) -> list[int]:
        """Returns the numbers of texts with one more word each, whose states are computed together."""
        self.lm.prefetch([text.state for text, word in pairs if word and word not in text.after])
        return [self.complete(*pair).number for pair in pairs]

    def distinct(self, beams: Beams, words: int) -> list[int]:
        """Returns the places of the first hypotheses with the same last words, part of a word and last label."""
        first: dict[Any, int] = {}
        for place, (text, part, last) in enumerate(zip(beams.text_B.tolist(), beams.part_B, beams.last_B)):
            first.setdefault((*self.texts[text].words(words), part, last), place)
        return list(first.values())
