"""The search of `ctcdecoder`: a prefix beam search over labels, whose complete words a model scores.

Dims: F frames, N labels, B hypotheses, K labels of a frame, C candidates, G different ones, S results.
"""

from __future__ import annotations

import array
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nplm_jax.apps.decoding.ctc_scores import Hotwords, LanguageModel, check_number
from nplm_jax.apps.decoding.labels import Label
from nplm_jax.apps.kenlm import model as kenlm
from nplm_jax.utils.errors import require


class Text:
    """Complete words: `before`, then `word`; `score` is that of the model and of the hotwords."""

    __slots__ = ('after', 'before', 'score', 'state', 'word')

    def __init__(self, before: Text | None, word: str, score: float, state: Any) -> None:
        self.before, self.word, self.score, self.state = before, word, score, state
        self.after: dict[str, Text] = {}

    def words(self, most: float = math.inf) -> list[str]:
        """Returns the last words, in reading order."""
        words: list[str] = []
        text = self
        while text.before is not None and len(words) < most:
            words.append(text.word)
            text = text.before
        return words[::-1]


class Prefixes:
    """The prefixes that a search has met, by number: complete words, a part of one, and whether it can grow.

    Attributes:
        prefixes: The prefixes.
        scores: What is added to the log-probability of each.
    """

    def __init__(self, labels: Sequence[Label], lm: LanguageModel | None, hotwords: Hotwords, state: Any) -> None:
        self._labels, self._lm, self._hotwords = labels, lm, hotwords
        self._is_blank_N = np.array([label.is_blank for label in labels])
        self.prefixes: list[tuple[Text, str, bool]] = []
        self.scores = array.array('d')
        self._ids: dict[tuple[Text, str, bool], int] = {}
        self._rows: dict[int, np.ndarray] = {}  # the prefix after each label, -1 before it is needed
        self._partial: dict[str, float] = {'': 0.0}
        self._find(Text(None, '', 0.0, state), '', False)

    def extend(self, prefix_B: np.ndarray, last_B: np.ndarray, labels_K: np.ndarray) -> np.ndarray:
        """Returns the prefix after each label in the next frame, B x K."""
        before = prefix_B.tolist()
        unknown = np.full(len(self._labels), -1)
        self._rows = {p: self._rows[p] if p in self._rows else unknown.copy() for p in before}
        after_BxK = np.stack([self._rows[p] for p in before])[:, labels_K]
        stays_BxK = self._is_blank_N[labels_K] | (labels_K == last_B[:, None])
        after_BxK = np.where(stays_BxK, prefix_B[:, None], after_BxK)
        for b, k in np.argwhere(after_BxK < 0).tolist():
            row, label = self._rows[before[b]], labels_K[k]
            if row[label] < 0:  # two hypotheses may have one prefix
                row[label] = self._append(before[b], self._labels[label])
            after_BxK[b, k] = row[label]
        return after_BxK

    def _append(self, prefix: int, label: Label) -> int:
        text, partial, is_closed = self.prefixes[prefix]
        if label.begins_word or is_closed:
            return self._find(self.complete(text, partial), label.text, label.ends_word)
        return self._find(text, partial + label.text, label.ends_word)

    def _find(self, text: Text, partial: str, is_closed: bool) -> int:
        """Returns the number of a prefix, which is scored when it is new."""
        key = text, partial, is_closed
        if (number := self._ids.get(key)) is None:
            number = self._ids[key] = len(self.prefixes)
            if partial not in self._partial:
                unknown = self._lm.score_partial_token(partial) if self._lm else 0.0
                self._partial[partial] = self._hotwords.partial.get(partial, unknown)
            self.prefixes.append(key)
            self.scores.append(text.score + self._partial[partial])
        return number

    def distinct(self, beams: Beams, words: int) -> list[int]:
        """Returns the places of the first hypotheses with the same last words, part of a word and last label."""
        first: dict[Any, int] = {}
        for i, (prefix, last) in enumerate(zip(beams.prefix_B.tolist(), beams.last_B.tolist())):
            text, partial, _ = self.prefixes[prefix]
            first.setdefault((*text.words(words), partial, last), i)
        return list(first.values())

    def complete(self, text: Text, word: str) -> Text:
        """Returns the text with one more word, or itself if the word is empty."""
        if not word:
            return text
        if word not in text.after:
            score, state = self._lm.score(text.state, word) if self._lm else (0.0, None)
            text.after[word] = Text(text, word, text.score + score + self._hotwords.score(word), state)
        return text.after[word]


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
    """Hypotheses, best first: their prefixes, their labels in the last frame, and their log-probabilities."""

    prefix_B: np.ndarray
    last_B: np.ndarray
    logit_B: np.ndarray


class Step(NamedTuple):
    """For each hypothesis the place of the one before it in the last frame, and its label."""

    before_B: np.ndarray
    label_B: np.ndarray


class Result(NamedTuple):
    """A text, the frames of its words, its log-probability, and the total."""

    text: Text
    frames: list[tuple[int, int]]
    logit_score: float
    score: float


def search(
    log_p_FxN: np.ndarray,
    labels: Sequence[Label],
    lm: LanguageModel | None,
    hotwords: Hotwords,
    limits: Limits,
    state: kenlm.State | None = None,
) -> list[Result]:
    """Returns what the search ends with, different texts, best first.

    Args:
        log_p_FxN: Log-probabilities of the labels in each frame.
        labels: What each label does.
        lm: The model; None for none.
        hotwords: Words that are worth more.
        limits: What is kept.
        state: The state of the model before the text; None for the beginning.
    """
    prefixes = Prefixes(labels, lm, hotwords, lm.get_start_state() if lm and state is None else state)
    blank = next(i for i, label in enumerate(labels) if label.is_blank)
    beams = Beams(np.zeros(1, np.int64), np.full(1, blank), np.zeros(1))
    steps: list[Step] = []
    order = lm.order if lm else 1
    history = None if order is None else max(1, order - 1)
    for log_p_N in log_p_FxN:
        beams, step = _advance(prefixes, beams, log_p_N, limits)
        if limits.prune_history and history:
            kept = prefixes.distinct(beams, history)
            beams, step = Beams(*(x_B[kept] for x_B in beams)), Step(*(x_B[kept] for x_B in step))
        steps.append(step)
    found: dict[Text, tuple[float, float, int]] = {}  # log P, that of the best hypothesis, its place
    for place, (prefix, logit) in enumerate(zip(beams.prefix_B.tolist(), beams.logit_B.tolist())):
        text = prefixes.complete(*prefixes.prefixes[prefix][:2])
        total, best, best_place = found.get(text, (-math.inf, -math.inf, 0))
        found[text] = float(np.logaddexp(total, logit)), *max((best, best_place), (logit, place))
    scores = {text: row[0] + text.score + (lm.score_end(text.state) if lm else 0.0) for text, row in found.items()}
    least = max(scores.values()) + limits.beam_prune_logp
    ranked = sorted((text for text in found if scores[text] >= least), key=scores.__getitem__, reverse=True)
    paths_FxS = _paths(steps, np.array([found[text][2] for text in ranked]))
    return [
        Result(text, _word_frames(path, labels), found[text][0], scores[text])
        for text, path in zip(ranked, paths_FxS.T.tolist())
    ]


def _advance(prefixes: Prefixes, beams: Beams, log_p_N: np.ndarray, limits: Limits) -> tuple[Beams, Step]:
    """Returns the hypotheses after one more frame."""
    is_used_N = log_p_N >= limits.token_min_logp
    is_used_N[log_p_N.argmax()] = True
    labels_K = np.flatnonzero(is_used_N)
    after_BxK = prefixes.extend(beams.prefix_B, beams.last_B, labels_K)
    logit_C = (beams.logit_B[:, None] + log_p_N[labels_K]).ravel()
    key_C = (after_BxK * len(log_p_N) + labels_K).ravel()
    order_C = np.lexsort((-logit_C, key_C))  # of each key, the most probable candidate is first
    starts_G = np.flatnonzero(np.diff(key_C[order_C], prepend=-1))
    best_G, logit_G = order_C[starts_G], np.logaddexp.reduceat(logit_C[order_C], starts_G)
    prefix_G, last_G = np.divmod(key_C[best_G], len(log_p_N))
    score_G = logit_G + np.frombuffer(prefixes.scores)[prefix_G]
    kept = np.flatnonzero(score_G >= score_G.max() + limits.beam_prune_logp)
    kept = kept[np.argsort(-score_G[kept], kind='stable')[: limits.beam_width]]
    return Beams(prefix_G[kept], last_G[kept], logit_G[kept]), Step(best_G[kept] // len(labels_K), last_G[kept])


def _paths(steps: Sequence[Step], places_S: np.ndarray) -> np.ndarray:
    """Returns the labels of the alignments that end at these places, F x S."""
    path_FxS = np.empty((len(steps), len(places_S)), np.int64)
    for frame in range(len(steps) - 1, -1, -1):
        before_B, label_B = steps[frame]
        path_FxS[frame], places_S = label_B[places_S], before_B[places_S]
    return path_FxS


def _word_frames(path: Sequence[int], rules: Sequence[Label]) -> list[tuple[int, int]]:
    """Returns the first frame of each word of an alignment, and the frame after its last label."""
    found: list[tuple[int, int]] = []
    is_open, last, before = False, -1, Label('')
    for frame, number in enumerate(path):
        label = rules[number]
        if not label.is_blank and number != last:
            is_open = is_open and not (label.begins_word or before.ends_word)
            before = label
        if label.text:
            start = found.pop()[0] if is_open else frame
            found.append((start, frame + 1))
            is_open = True
        last = number
    return found
