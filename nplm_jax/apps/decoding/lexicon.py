"""Constrains decoding to a lexicon, with a trie over labels and look-ahead scores.

Dims: M nodes, E edges, B hypotheses, A extensions of hypotheses along edges, C candidates, D completed words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nplm_jax.apps.decoding.ctc_scores import Hotwords, Scorer
from nplm_jax.apps.decoding.prefixes import Beams, Candidates, Limits, Prefixes, Text
from nplm_jax.utils.errors import require

Lexicon = Mapping[str, Sequence[Sequence[str]]]  # word -> its spellings in tokens


class Trie:
    """A trie of the spellings in a lexicon. Node 0 is the root.

    Attributes:
        words: The words whose spellings end at each node.
        starts_M: The index of the first edge of each node, followed by the total number of edges.
        label_E: The label of each edge.
        target_E: The target node of each edge.
        look_ahead_M: The largest log P, in nats, of the words at or below each node, scored at the beginning of a text.
            0 at the root.
        has_words_M: Whether words end at each node.
    """

    def __init__(self, lexicon: Lexicon, indices: Mapping[str, int], silence: int, lm: Scorer) -> None:
        """Builds the trie.

        Args:
            lexicon: The spellings of each word.
            indices: The index of each token except the blank.
            silence: The index of the token between words. The token may be repeated.
            lm: The scorer of words.

        Raises:
            BadInput: The value for a word is not a list of spellings, or a spelling is not a list of these tokens.
        """
        children: list[dict[int, int]] = [{}]
        self.words: list[list[str]] = [[]]
        start: Any = lm.get_start_state()
        best = [-np.inf]
        for word, spellings in lexicon.items():
            # The letters of a string would be read as spellings or tokens.
            is_nested = bool(spellings) and not any(isinstance(value, str) for value in (spellings, *spellings))
            allowed = 'must be a list of spellings, each a list of tokens'
            require(is_nested, 'lexicon', f'{word}: {spellings}', allowed)
            log_p, _ = lm.log_p(start, word)
            distinct = dict.fromkeys(map(tuple, spellings))
            for spelling in distinct:
                is_spelled = bool(spelling) and all(token in indices for token in spelling)
                allowed = f'must be spelled with the {len(indices)} tokens other than the blank'
                require(is_spelled, 'lexicon', f'{word} {" ".join(spelling)}', allowed)
                # Silence is always allowed around a word. A spelling that adds it would count alignments twice.
                if any(indices[token] == silence and rest in distinct for token, rest in _without_end(spelling)):
                    continue
                node = 0
                for token in spelling:
                    node = children[node].setdefault(indices[token], len(children))
                    if node == len(children):
                        children.append({})
                        self.words.append([])
                        best.append(-np.inf)
                    best[node] = max(best[node], log_p)
                self.words[node].append(word)
        edges = [[*row.items()] for row in children]
        edges[0].append((silence, 0))  # in addition to the edge of spellings that begin with silence
        self.starts_M = np.cumsum([0, *map(len, edges)])
        self.label_E, self.target_E = np.array([edge for row in edges for edge in row]).T
        self.look_ahead_M = np.array([0.0, *best[1:]])
        self.has_words_M = np.array(list(map(bool, self.words)))


def _without_end(spelling: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """Returns the first and the last token of a spelling, each with the other tokens."""
    return [(spelling[0], spelling[1:]), (spelling[-1], spelling[:-1])]


class LexiconPrefixes(Prefixes):
    """A prefix table that allows only the words of a lexicon. A partial word is a node of the trie."""

    part_scores: np.ndarray

    def __init__(self, trie: Trie, lm: Scorer, hotwords: Hotwords, blank: int, num_labels: int) -> None:
        """Creates the table. See `Prefixes`."""
        super().__init__(lm, hotwords, None, blank, num_labels)
        self._trie = trie
        self.part_scores = lm.alpha * trie.look_ahead_M
        self.part_bonuses = np.zeros_like(self.part_scores)

    def extend(self, beams: Beams, log_p_N: np.ndarray, limits: Limits) -> Candidates:
        """See `Prefixes.extend`."""
        trie, indices_B = self._trie, np.arange(len(beams.part_B))
        first_B = trie.starts_M[beams.part_B]
        counts_B = trie.starts_M[beams.part_B + 1] - first_B
        parent_A = np.repeat(indices_B, counts_B)
        edge_A = np.arange(len(parent_A)) + (first_B - np.cumsum(counts_B) + counts_B)[parent_A]
        label_A = trie.label_E[edge_A]
        log_p_A = log_p_N[label_A]
        kept = np.flatnonzero((log_p_A >= limits.token_min_logp) & (label_A != beams.last_B[parent_A]))
        parent_A, label_A, part_A, log_p_A = parent_A[kept], label_A[kept], trie.target_E[edge_A[kept]], log_p_A[kept]
        last = np.flatnonzero(beams.last_B != self.blank)
        score_B = beams.logit_B + np.frombuffer(self.text_scores)[beams.text_B]
        score_A = score_B[parent_A] + log_p_A + self.part_scores[part_A]
        stay_B = score_B + self.part_scores[beams.part_B]
        score_C = np.concatenate([stay_B + log_p_N[self.blank], (stay_B + log_p_N[beams.last_B])[last], score_A])
        least = score_C.max() + limits.beam_prune_logp
        if len(score_C) > limits.beam_width:  # prune before recombining, so that fewer words are completed
            index = len(score_C) - limits.beam_width
            least = max(least, np.partition(score_C, index)[index])
        kept = np.flatnonzero(score_A >= least)
        parent_A, label_A, part_A = parent_A[kept], label_A[kept], part_A[kept]
        ended = np.flatnonzero(trie.has_words_M[part_A])
        words_D, index_D = [], []
        for index, node, number in zip(ended.tolist(), part_A[ended].tolist(), beams.text_B[parent_A[ended]].tolist()):
            for word in trie.words[node]:
                words_D.append((self.texts[number], word))
                index_D.append(index)
        text_D, at_D = np.array(self.complete_all(words_D), np.int64), np.array(index_D, np.int64)
        inner = np.flatnonzero(trie.starts_M[part_A] < trie.starts_M[part_A + 1])
        parent_C = np.concatenate([indices_B, last, parent_A[inner], parent_A[at_D]])
        blank_B = np.full(len(indices_B), self.blank)
        label_C = np.concatenate([blank_B, beams.last_B[last], label_A[inner], label_A[at_D]])
        text_C = np.concatenate([beams.text_B[parent_C[: len(parent_C) - len(at_D)]], text_D])
        part_C = np.concatenate([beams.part_B, beams.part_B[last], part_A[inner], np.zeros(len(at_D), np.int64)])
        return Candidates(parent_C, label_C, text_C, part_C)

    def final_texts(self, beams: Beams) -> list[tuple[Text, int]]:
        """Returns the texts of hypotheses that have no partial word. See `Prefixes.final_texts`.

        If every hypothesis has a partial word, returns the texts of all hypotheses, without the partial words.
        """
        indices = np.flatnonzero(beams.part_B == 0) if (beams.part_B == 0).any() else np.arange(len(beams.part_B))
        return [(self.texts[number], index) for number, index in zip(beams.text_B[indices].tolist(), indices.tolist())]
