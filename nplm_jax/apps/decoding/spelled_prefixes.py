"""Implements decoding without a lexicon, with a prefix table of all words that the labels can spell.

Dims: N labels, B hypotheses, U distinct partial words, K labels kept in a frame.
"""

from __future__ import annotations

import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from nplm_jax.apps.decoding.ctc_scores import Hotwords, Scorer
from nplm_jax.apps.decoding.labels import Label
from nplm_jax.apps.decoding.prefixes import Beams, Candidates, Limits, Prefixes, Text

_ROWS = 1000  # maximum number of cached transition rows for partial words outside the beam


class SpelledPrefixes(Prefixes):
    """A prefix table without a lexicon.

    Attributes:
        parts: The characters of each partial word, and whether the next label begins a new word.
    """

    part_scores: array.array[float]
    part_bonuses: array.array[float]

    def __init__(self, labels: Sequence[Label], lm: Scorer, hotwords: Hotwords, state: Any = None) -> None:
        """Creates the table.

        Args:
            labels: The effect of each label.
            lm: The scorer of words.
            hotwords: The hotwords.
            state: The state of the language model before the text. None stands for the beginning of a text.
        """
        blank = next(i for i, label in enumerate(labels) if label.is_blank)
        super().__init__(lm, hotwords, state, blank, len(labels))
        self._labels = labels
        self._begins_N = np.array([label.begins_word for label in labels])
        self.parts = [('', False)]
        self.part_scores, self.part_bonuses = array.array('d', [0.0]), array.array('d', [0.0])
        self._numbers = {('', False): 0}
        # For each partial word: the partial word that each label leads to, or -1 if it is not computed yet.
        self._rows: dict[int, np.ndarray] = {}

    def extend(self, beams: Beams, log_p_N: np.ndarray, limits: Limits) -> Candidates:
        """See `Prefixes.extend`."""
        is_used_N = log_p_N >= limits.token_min_logp
        is_used_N[log_p_N.argmax()] = True
        labels_K = np.flatnonzero(is_used_N)
        parts_U, inverse_B = np.unique(beams.part_B, return_inverse=True)
        parts, labels = parts_U.tolist(), labels_K.tolist()
        if len(self._rows) >= _ROWS + len(parts):
            self._rows = {part: self._row(part) for part in parts}
        after_UxK = np.stack([self._row(part) for part in parts])[:, labels_K]
        for u, k in np.argwhere(after_UxK < 0).tolist():
            after_UxK[u, k] = self._rows[parts[u]][labels[k]] = self._append(parts[u], self._labels[labels[k]])
        stays_BxK = (labels_K == self.blank) | (labels_K == beams.last_B[:, None])
        part_BxK = np.where(stays_BxK, beams.part_B[:, None], after_UxK[inverse_B])
        is_ended_U = np.array([self.parts[part][1] for part in parts])
        ends_BxK = ~stays_BxK & (self._begins_N[labels_K] | is_ended_U[inverse_B, None])
        ending, after_B = np.flatnonzero(ends_BxK.any(axis=1)), beams.text_B.copy()
        words = [(self.texts[t], self.parts[p][0]) for t, p in zip(beams.text_B[ending], beams.part_B[ending])]
        after_B[ending] = self.complete_all(words)
        text_BxK = np.where(ends_BxK, after_B[:, None], beams.text_B[:, None])
        parent_BxK, label_BxK = np.broadcast_arrays(np.arange(len(after_B))[:, None], labels_K)
        return Candidates(*(x_BxK.ravel() for x_BxK in (parent_BxK, label_BxK, text_BxK, part_BxK)))

    def final_texts(self, beams: Beams) -> list[tuple[Text, int]]:
        """Returns the texts of all hypotheses, in which partial words count as complete words."""
        numbers = zip(beams.text_B.tolist(), beams.part_B.tolist())
        return [(self.complete(self.texts[t], self.parts[p][0]), index) for index, (t, p) in enumerate(numbers)]

    def _row(self, part: int) -> np.ndarray:
        if part not in self._rows:
            self._rows[part] = np.full(len(self._labels), -1, np.int32)
        return self._rows[part]

    def _append(self, part: int, label: Label) -> int:
        """Returns the index of a partial word extended by a label, and scores it if it is new."""
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
            self.part_bonuses.append(self.hotwords.prefix_boosts.get(partial, unknown) - unknown)
        return self._numbers[key]


def word_frames(path: Sequence[int], labels: Sequence[Label]) -> list[tuple[int, int]]:
    """Returns the frame range of each word in an alignment, as (first frame, last frame + 1)."""
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
