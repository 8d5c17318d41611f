"""A lexicon as a trie over labels, with the score of the best word below each node.

Dims: M nodes, E edges, B hypotheses, A continuations of hypotheses along edges, D of these that end a word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nplm_jax.apps.decoding.ctc_scores import Hotwords, Scorer
from nplm_jax.apps.decoding.prefixes import Beams, Candidates, Limits, Prefixes, Text
from nplm_jax.utils.errors import require

Lexicon = Mapping[str, Sequence[Sequence[str]]]  # the spellings of each word, in tokens


class Trie:
    """The words of a lexicon by their spellings. Node 0 is the root.

    Attributes:
        words: The words that end at each node.
        starts_M: The first edge of each node; one number more than nodes.
        label_E: The labels of the edges.
        target_E: The nodes to which they lead.
        look_ahead_M: The largest log P of a word at or below each node, at the beginning of a text; 0 at the root.
    """

    def __init__(self, lexicon: Lexicon, places: Mapping[str, int], silence: int, lm: Scorer) -> None:
        """Builds the trie.

        Args:
            lexicon: The spellings of each word.
            places: The number of each token.
            silence: The number of the token between words, any number of which may stand there.
            lm: The scores of words.

        Raises:
            BadInput: A word is spelled in other tokens, or not at all.
        """
        children: list[dict[int, int]] = [{}]
        self.words: list[list[str]] = [[]]
        start: Any = lm.get_start_state()
        best = [-np.inf]
        for word, spellings in lexicon.items():
            log_p, _ = lm.log_p(start, word)
            for spelling in dict.fromkeys(map(tuple, spellings)):
                is_spelled = bool(spelling) and all(token in places for token in spelling)
                allowed = f'must be spelled in the {len(places)} tokens'
                require(is_spelled, 'lexicon', f'{word} {" ".join(spelling)}', allowed)
                node = 0
                for token in spelling:
                    node = children[node].setdefault(places[token], len(children))
                    if node == len(children):
                        children.append({})
                        self.words.append([])
                        best.append(-np.inf)
                    best[node] = max(best[node], log_p)
                self.words[node].append(word)
        children[0].setdefault(silence, 0)
        self.starts_M = np.cumsum([0, *map(len, children)])
        self.label_E = np.array([label for row in children for label in row])
        self.target_E = np.array([target for row in children for target in row.values()])
        self.look_ahead_M = np.array([0.0, *best[1:]])
        self.has_words_M = np.array(list(map(bool, self.words)))


class LexiconPrefixes(Prefixes):
    """The words of a lexicon. A part of a word is a node of the trie."""

    part_scores: np.ndarray

    def __init__(self, trie: Trie, lm: Scorer, hotwords: Hotwords, blank: int, num_labels: int) -> None:
        """Takes the words and their scores."""
        super().__init__(lm, hotwords, lm.get_start_state(), blank, num_labels)
        self._trie = trie
        self.part_scores = lm.alpha * trie.look_ahead_M
        self.part_bonuses = np.zeros_like(self.part_scores)

    def extend(self, beams: Beams, log_p_N: np.ndarray, limits: Limits) -> Candidates:
        """Returns the hypotheses after each label of the next frame that `limits` allows."""
        trie, places_B = self._trie, np.arange(len(beams.part_B))
        first_B = trie.starts_M[beams.part_B]
        counts_B = trie.starts_M[beams.part_B + 1] - first_B
        before_A = np.repeat(places_B, counts_B)
        edge_A = np.arange(len(before_A)) + (first_B - np.cumsum(counts_B) + counts_B)[before_A]
        label_A = trie.label_E[edge_A]
        log_p_A = log_p_N[label_A]
        kept = np.flatnonzero((log_p_A >= limits.token_min_logp) & (label_A != beams.last_B[before_A]))
        before_A, label_A, part_A, log_p_A = before_A[kept], label_A[kept], trie.target_E[edge_A[kept]], log_p_A[kept]
        last = np.flatnonzero(beams.last_B != self.blank)
        score_B = beams.logit_B + np.frombuffer(self.text_scores)[beams.text_B]
        score_A = score_B[before_A] + log_p_A + self.part_scores[part_A]
        stay_B = score_B + self.part_scores[beams.part_B]
        score_C = np.concatenate([stay_B + log_p_N[self.blank], (stay_B + log_p_N[beams.last_B])[last], score_A])
        least = score_C.max() + limits.beam_prune_logp
        if len(score_C) > limits.beam_width:
            place = len(score_C) - limits.beam_width
            least = max(least, np.partition(score_C, place)[place])
        kept = np.flatnonzero(score_A >= least)
        before_A, label_A, part_A = before_A[kept], label_A[kept], part_A[kept]
        ended = np.flatnonzero(trie.has_words_M[part_A])
        words_D, place_D = [], []
        for place, node, number in zip(ended.tolist(), part_A[ended].tolist(), beams.text_B[before_A[ended]].tolist()):
            for word in trie.words[node]:
                words_D.append((self.texts[number], word))
                place_D.append(place)
        text_D, at_D = np.array(self.complete_all(words_D), np.int64), np.array(place_D, np.int64)
        inner = np.flatnonzero(trie.starts_M[part_A] < trie.starts_M[part_A + 1])
        before_C = np.concatenate([places_B, last, before_A[inner], before_A[at_D]])
        label_C = np.concatenate(
            [np.full(len(places_B), self.blank), beams.last_B[last], label_A[inner], label_A[at_D]]
        )
        text_C = np.concatenate([beams.text_B[before_C[: len(before_C) - len(at_D)]], text_D])
        part_C = np.concatenate([beams.part_B, beams.part_B[last], part_A[inner], np.zeros(len(at_D), np.int64)])
        return Candidates(before_C, label_C, text_C, part_C)

    def ends(self, beams: Beams) -> list[tuple[Text, int]]:
        """Returns the texts of hypotheses that end with a word; of all if there are none, without the part of one."""
        places = np.flatnonzero(beams.part_B == 0) if (beams.part_B == 0).any() else np.arange(len(beams.part_B))
        return [(self.texts[number], place) for number, place in zip(beams.text_B[places].tolist(), places.tolist())]
