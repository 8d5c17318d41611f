"""The prefix table of a CTC beam search, which contains texts of complete words, partial words and all scores.

Dims: N labels, B hypotheses, C candidates, G groups of hypotheses.
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
    """Pruning thresholds. See `ctcdecoder.BeamSearchDecoderCTC.decode_beams`.

    Attributes:
        recombine: Whether to recombine hypotheses whose scores change equally with every extension. Only the best of
            them then competes for a place in the beam, and the others are kept only if there is room. In contrast,
            `prune_history` removes the others, and only after the beam has been filled.
    """

    beam_width: int
    beam_prune_logp: float
    token_min_logp: float
    prune_history: bool = False
    recombine: bool = False

    def check(self) -> None:
        """Raises BadInput if a threshold is out of range."""
        is_count = isinstance(self.beam_width, (int, np.integer)) and self.beam_width > 0
        require(is_count, 'beam_width', self.beam_width, 'must be at least 1')
        check_number('beam_prune_logp', self.beam_prune_logp, most=0)
        check_number('token_min_logp', self.token_min_logp)


class Beams(NamedTuple):
    """Hypotheses, best first.

    Attributes:
        text_B: The text index of each hypothesis, int64.
        part_B: The partial-word index of each hypothesis, int64.
        last_B: The label of the most probable alignment in the last frame.
        logit_B: The log-probability of all alignments, nats.
        path_B: The log-probability of the most probable alignment, nats.
        parent_B: The index of the parent among the hypotheses of the previous frame.
    """

    text_B: np.ndarray
    part_B: np.ndarray
    last_B: np.ndarray
    logit_B: np.ndarray
    path_B: np.ndarray
    parent_B: np.ndarray


class Candidates(NamedTuple):
    """Hypotheses extended by one frame, which may contain duplicates.

    Attributes:
        parent_C: The index of the parent hypothesis of each candidate.
        label_C: The label of each candidate in the new frame.
        text_C: The text index of each candidate.
        part_C: The partial-word index of each candidate.
    """

    parent_C: np.ndarray
    label_C: np.ndarray
    text_C: np.ndarray
    part_C: np.ndarray


class Text:
    """A text of complete words, as a node in a tree.

    Attributes:
        number: The index of the text in `Prefixes.texts`.
        parent: The text without its last word. None for the empty text.
        word: The last word.
        log_p: Log P of the words under the language model, nats.
        score: The language model score: `alpha` times log P plus `beta` for each word.
        bonus: The hotword score.
        state: The language model state after the words.
        children: The texts that extend this text by one word, by word.
    """

    __slots__ = ('bonus', 'children', 'log_p', 'number', 'parent', 'score', 'state', 'word')

    def __init__(
        self, number: int, parent: Text | None, word: str, log_p: float, score: float, bonus: float, state: Any
    ) -> None:
        self.number, self.parent, self.word, self.log_p, self.score = number, parent, word, log_p, score
        self.bonus, self.state, self.children = bonus, state, dict[str, Text]()

    def words(self, most: float = math.inf) -> list[str]:
        """Returns the last words in reading order, but no more than `most` words."""
        words: list[str] = []
        text = self
        while text.parent is not None and len(words) < most:
            words.append(text.word)
            text = text.parent
        return words[::-1]


class Prefixes(abc.ABC):
    """The texts and partial words of a search, by index.

    The score and the extensions of a partial word do not depend on the preceding words.

    Attributes:
        lm: The scorer of words.
        hotwords: The hotwords.
        blank: The index of the CTC blank.
        num_labels: The number of labels.
        texts: The texts of complete words. The first text is empty.
        text_scores: The language model score of each text.
        text_bonuses: The hotword score of each text.
        text_contexts: The index of the context of each text. The context consists of the last words, which determine
            the scores of new words.
        part_scores: The language model score of each partial word. The first partial word is empty.
        part_bonuses: The provisional hotword boost of each partial word.
    """

    part_scores: array.array[float] | np.ndarray
    part_bonuses: array.array[float] | np.ndarray

    def __init__(self, lm: Scorer, hotwords: Hotwords, state: Any, blank: int, num_labels: int) -> None:
        self.lm, self.hotwords, self.blank, self.num_labels = lm, hotwords, blank, num_labels
        # Use at least one word, as pyctcdecode does. Otherwise, a search without a model would find only one text.
        self._context_words = None if lm.order is None else max(1, lm.order - 1)
        self._contexts: dict[Any, int] = {(): 0}
        self.text_contexts = array.array('q', [0])
        self.texts = [Text(0, None, '', 0.0, 0.0, 0.0, lm.get_start_state() if state is None else state)]
        self.text_scores, self.text_bonuses = array.array('d', [0.0]), array.array('d', [0.0])

    @abc.abstractmethod
    def extend(self, beams: Beams, log_p_N: np.ndarray, limits: Limits) -> Candidates:
        """Extends hypotheses by the labels of the next frame.

        Args:
            beams: The hypotheses.
            log_p_N: Log-probabilities of the labels, in nats.
            limits: The pruning thresholds.

        Returns:
            The candidates, including hypotheses that a blank or a repeated label leaves unchanged.
        """

    @abc.abstractmethod
    def final_texts(self, beams: Beams) -> list[tuple[Text, int]]:
        """Returns the texts of hypotheses after the last frame, each with the index of its hypothesis."""

    def complete(self, text: Text, word: str) -> Text:
        """Returns the text extended by a word, or the text itself if the word is empty."""
        if not word:
            return text
        if word not in text.children:
            log_p, state = self.lm.log_p(text.state, word)
            score, bonus = text.score + self.lm.alpha * log_p + self.lm.beta, text.bonus + self.hotwords.score(word)
            longer = Text(len(self.texts), text, word, text.log_p + log_p, score, bonus, state)
            text.children[word] = longer
            self.texts.append(longer)
            context = longer.number if self._context_words is None else tuple(longer.words(self._context_words))
            self.text_contexts.append(self._contexts.setdefault(context, len(self._contexts)))
            self.text_scores.append(score)
            self.text_bonuses.append(bonus)
        return text.children[word]

    def complete_all(self, pairs: Sequence[tuple[Text, str]]) -> list[int]:
        """Extends each text by its word, in one batch of the language model. Returns the indices of the new texts."""
        self.lm.look_up([text.state for text, word in pairs if word and word not in text.children])
        return [self.complete(*pair).number for pair in pairs]

    def recombine(self, text_B: np.ndarray, part_B: np.ndarray, last_B: np.ndarray, score_B: np.ndarray) -> np.ndarray:
        """Returns the index of the best hypothesis for each combination of context, partial word and last label.

        Every extension changes the scores of all hypotheses with the same combination by the same amount.

        Args:
            text_B: The text of each hypothesis.
            part_B: The partial word of each hypothesis.
            last_B: The label of each hypothesis in the last frame.
            score_B: The score of each hypothesis.
        """
        context_B = np.frombuffer(self.text_contexts, np.int64)[text_B]
        order_B, starts_G = self.group(context_B, part_B, last_B, score_B)
        return np.sort(order_B[starts_G])

    def group(
        self, words_B: np.ndarray, part_B: np.ndarray, last_B: np.ndarray, score_B: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Groups hypotheses that agree in complete words, partial word and last label.

        Args:
            words_B: The index of the text or the context of each hypothesis.
            part_B: The partial word of each hypothesis.
            last_B: The label of each hypothesis in the last frame.
            score_B: The score of each hypothesis.

        Returns:
            The indices of the hypotheses, sorted by group and best first within a group, and the position at which each
            group starts in this order.
        """
        key_B = (words_B * len(self.part_scores) + part_B) * self.num_labels + last_B
        order_B = np.lexsort((-score_B, key_B))
        return order_B, np.flatnonzero(np.diff(key_B[order_B], prepend=-1))
