"""A prefix beam search over the labels of a CTC model, whose complete words a language model scores.

Dims: F frames, N labels, B hypotheses, U different parts of words, K labels of a frame, C candidates, G different ones,
S results.
"""

from __future__ import annotations

import abc
import array
import bisect
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nplm_jax.apps.decoding.ctc_scores import Hotwords, Scorer, check_number
from nplm_jax.apps.decoding.labels import Label
from nplm_jax.utils.errors import require

_ROWS = 1000  # of parts outside the beam; a row that is dropped is computed again


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


class SpelledPrefixes(Prefixes):
    """The words that labels spell. A part is a string and whether the next label begins a word."""

    part_scores: array.array[float]
    part_bonuses: array.array[float]

    def __init__(self, labels: Sequence[Label], lm: Scorer, hotwords: Hotwords, state: Any) -> None:
        """Takes what each label does, and the state of the model before the text."""
        blank = next(i for i, label in enumerate(labels) if label.is_blank)
        super().__init__(lm, hotwords, state, blank, len(labels))
        self._labels = labels
        self._begins_N = np.array([label.begins_word for label in labels])
        self.parts = [('', False)]
        self.part_scores, self.part_bonuses = array.array('d', [0.0]), array.array('d', [0.0])
        self._numbers = {('', False): 0}
        self._rows: dict[int, np.ndarray] = {}  # of a part, the part after each label; -1 before it is needed

    def extend(self, beams: Beams, log_p_N: np.ndarray, limits: Limits) -> Candidates:
        """Returns the hypotheses after each label of the next frame that `limits` allows."""
        is_used_N = log_p_N >= limits.token_min_logp
        is_used_N[log_p_N.argmax()] = True
        labels_K = np.flatnonzero(is_used_N)
        parts_U, place_B = np.unique(beams.part_B, return_inverse=True)
        parts, labels = parts_U.tolist(), labels_K.tolist()
        if len(self._rows) >= _ROWS + len(parts):
            self._rows = {part: self._row(part) for part in parts}
        after_UxK = np.stack([self._row(part) for part in parts])[:, labels_K]
        for u, k in np.argwhere(after_UxK < 0).tolist():
            after_UxK[u, k] = self._rows[parts[u]][labels[k]] = self._append(parts[u], self._labels[labels[k]])
        stays_BxK = (labels_K == self.blank) | (labels_K == beams.last_B[:, None])
        part_BxK = np.where(stays_BxK, beams.part_B[:, None], after_UxK[place_B])
        is_ended_U = np.array([self.parts[part][1] for part in parts])
        ends_BxK = ~stays_BxK & (self._begins_N[labels_K] | is_ended_U[place_B, None])
        ending, after_B = np.flatnonzero(ends_BxK.any(axis=1)), beams.text_B.copy()
        words = [(self.texts[t], self.parts[p][0]) for t, p in zip(beams.text_B[ending], beams.part_B[ending])]
        after_B[ending] = self.complete_all(words)
        text_BxK = np.where(ends_BxK, after_B[:, None], beams.text_B[:, None])
        before_BxK, label_BxK = np.broadcast_arrays(np.arange(len(after_B))[:, None], labels_K)
        return Candidates(*(x_BxK.ravel() for x_BxK in (before_BxK, label_BxK, text_BxK, part_BxK)))

    def ends(self, beams: Beams) -> list[tuple[Text, int]]:
        """Returns the texts of all hypotheses; the part of a word that is last is a word."""
        numbers = zip(beams.text_B.tolist(), beams.part_B.tolist())
        return [(self.complete(self.texts[t], self.parts[p][0]), place) for place, (t, p) in enumerate(numbers)]

    def _row(self, part: int) -> np.ndarray:
        if part not in self._rows:
            self._rows[part] = np.full(len(self._labels), -1, np.int32)
        return self._rows[part]

    def _append(self, part: int, label: Label) -> int:
        """Returns the part of a word after a label, which is scored when it is new."""
        partial, is_ended = self.parts[part]
        if label.is_blank:
            return part
        partial = label.text if label.begins_word or is_ended else partial + label.text
        key = partial, label.ends_word
        if key not in self._numbers:
            unknown = self.lm.score_partial_token(partial) if partial else 0.0
            self._numbers[key] = len(self.parts)
            self.parts.append(key)
            self.part_scores.append(unknown)
            self.part_bonuses.append(self.hotwords.lent.get(partial, unknown) - unknown)
        return self._numbers[key]


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


class Step(NamedTuple):
    """The last step of the most probable alignment of each hypothesis: its place one frame before, and its label."""

    before_B: np.ndarray
    label_B: np.ndarray


class Result(NamedTuple):
    """A text that the search ends with.

    Attributes:
        text: The text.
        path: The labels of its most probable alignment, one for each frame.
        logit_score: Log-probability of its alignments.
        log_p: Log P of its words and of the end by the model.
        score: The total.
    """

    text: Text
    path: list[int]
    logit_score: float
    log_p: float
    score: float


def search(log_p_FxN: np.ndarray, prefixes: Prefixes, limits: Limits) -> list[Result]:
    """Returns what the search ends with, different texts, best first.

    Args:
        log_p_FxN: Log-probabilities of the labels in each frame.
        prefixes: What labels spell, before the first frame.
        limits: What is kept.
    """
    lm = prefixes.lm
    beams = Beams(np.zeros(1, np.int64), np.zeros(1, np.int64), np.full(1, prefixes.blank), np.zeros(1), np.zeros(1))
    steps: list[Step] = []
    history = None if lm.order is None else max(1, lm.order - 1)
    for log_p_N in log_p_FxN:
        beams, step = _advance(prefixes, beams, log_p_N, limits)
        if limits.prune_history and history:
            kept = prefixes.distinct(beams, history)
            beams, step = Beams(*(x_B[kept] for x_B in beams)), Step(*(x_B[kept] for x_B in step))
        steps.append(step)
    found: dict[Text, tuple[float, float, int]] = {}  # log P, that of the best alignment, its place
    for text, place in prefixes.ends(beams):
        total, best, best_place = found.get(text, (-math.inf, -math.inf, 0))
        logit, path = float(beams.logit_B[place]), float(beams.path_B[place])
        found[text] = float(np.logaddexp(total, logit)), *max((best, best_place), (path, place))
    lm.prefetch([text.state for text in found])
    ends = {text: lm.end_log_p(text.state) for text in found}
    scores = {text: row[0] + text.score + text.bonus + lm.alpha * ends[text] for text, row in found.items()}
    least = max(scores.values()) + limits.beam_prune_logp
    ranked = sorted((text for text in found if scores[text] >= least), key=scores.__getitem__, reverse=True)
    paths_FxS = _paths(steps, np.array([found[text][2] for text in ranked]))
    return [
        Result(text, path, found[text][0], text.log_p + ends[text], scores[text])
        for text, path in zip(ranked, paths_FxS.T.tolist())
    ]


def _advance(prefixes: Prefixes, beams: Beams, log_p_N: np.ndarray, limits: Limits) -> tuple[Beams, Step]:
    """Returns the hypotheses after one more frame."""
    before_C, label_C, text_C, part_C = prefixes.extend(beams, log_p_N, limits)
    logit_C, path_C = (x_B[before_C] + log_p_N[label_C] for x_B in (beams.logit_B, beams.path_B))
    key_C = (text_C * len(prefixes.part_scores) + part_C) * prefixes.num_labels + label_C
    order_C = np.lexsort((-path_C, key_C))  # of each key, the most probable alignment is first
    starts_G = np.flatnonzero(np.diff(key_C[order_C], prepend=-1))
    best_G, logit_G = order_C[starts_G], np.logaddexp.reduceat(logit_C[order_C], starts_G)
    text_G, part_G = text_C[best_G], part_C[best_G]
    score_G = logit_G + np.frombuffer(prefixes.text_scores)[text_G] + np.frombuffer(prefixes.part_scores)[part_G]
    kept = np.flatnonzero(score_G >= score_G.max() + limits.beam_prune_logp)
    kept = kept[np.argsort(-score_G[kept], kind='stable')[: limits.beam_width]]
    if prefixes.hotwords.words:
        total_G = score_G + np.frombuffer(prefixes.text_bonuses)[text_G]
        if prefixes.hotwords.lent:
            lifted_G = total_G + np.frombuffer(prefixes.part_bonuses)[part_G]
            kept = np.union1d(kept, _lifted(score_G, lifted_G, limits))
        kept = kept[np.argsort(-total_G[kept], kind='stable')]
    best_B = best_G[kept]
    label_B = label_C[best_B]
    return Beams(text_G[kept], part_G[kept], label_B, logit_G[kept], path_C[best_B]), Step(before_C[best_B], label_B)


def _lifted(score_G: np.ndarray, lifted_G: np.ndarray, limits: Limits) -> list[int]:
    """Returns the places of the hypotheses that hotwords keep, at most `beam_width`.

    A hypothesis gives way only to hypotheses that are better both with and without hotwords: to one that is better by
    more than `beam_prune_logp`, or to `beam_width` of them.

    Args:
        score_G: The scores without hotwords.
        lifted_G: The scores with hotwords and with what is lent.
        limits: What is kept.
    """
    prune, order_G = limits.beam_prune_logp, np.argsort(-score_G, kind='stable')
    ahead_G = np.searchsorted(-score_G[order_G], prune - score_G)  # how many have a score that is better by more
    is_near_G = (ahead_G == 0) | (np.maximum.accumulate(lifted_G[order_G])[ahead_G - 1] + prune <= lifted_G)
    near = order_G[is_near_G[order_G]]
    near = near[lifted_G[near] >= lifted_G[near[: limits.beam_width]].min()]  # others give way to these `beam_width`
    better: list[tuple[int, int]] = []  # for each place how many are better in both
    lifted: list[float] = []  # of those with a better score, sorted
    for place in near.tolist():
        better.append((len(lifted) - bisect.bisect_right(lifted, lifted_G[place]), place))
        bisect.insort(lifted, lifted_G[place])
    return [place for count, place in sorted(better)[: limits.beam_width] if count < limits.beam_width]


def _paths(steps: Sequence[Step], places_S: np.ndarray) -> np.ndarray:
    """Returns the labels of the alignments that end at these places, F x S."""
    path_FxS = np.empty((len(steps), len(places_S)), np.int64)
    for frame in range(len(steps) - 1, -1, -1):
        before_B, label_B = steps[frame]
        path_FxS[frame], places_S = label_B[places_S], before_B[places_S]
    return path_FxS


def word_frames(path: Sequence[int], labels: Sequence[Label]) -> list[tuple[int, int]]:
    """Returns the first frame of each word of an alignment, and the frame after its last label."""
    found: list[tuple[int, int]] = []
    is_open, last, before = False, -1, Label('')
    for frame, number in enumerate(path):
        label = labels[number]
        if not label.is_blank and number != last:
            is_open = is_open and not (label.begins_word or before.ends_word)
            before = label
        if label.text:
            start = found.pop()[0] if is_open else frame
            found.append((start, frame + 1))
            is_open = True
        last = number
    return found
