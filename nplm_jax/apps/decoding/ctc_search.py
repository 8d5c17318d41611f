"""Implements prefix beam search over the labels of a CTC model, with word-level language model scores.

Dims: F frames, N labels, B hypotheses, C candidates (extended hypotheses), G distinct candidates, S results.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nplm_jax.apps.decoding.prefixes import Beams, Limits, Prefixes, Text


class Result(NamedTuple):
    """A text found by the search.

    Attributes:
        text: The text.
        path: The index of the label of each frame in the most probable alignment.
        logit_score: The log of the total probability of all alignments, in nats.
        log_p: Log P of the words and the end of the sentence under the language model, in nats.
        score: The total score that ranks the results.
    """

    text: Text
    path: list[int]
    logit_score: float
    log_p: float
    score: float


def search(log_p_FxN: np.ndarray, prefixes: Prefixes, limits: Limits) -> list[Result]:
    """Searches for the best texts.

    Args:
        log_p_FxN: Log-probabilities of the labels in each frame, in nats.
        prefixes: The prefix table before the first frame. The search adds prefixes to it.
        limits: The pruning thresholds.

    Returns:
        Distinct texts, best first.
    """
    lm = prefixes.lm
    first = np.zeros(1, np.int64)
    beams = Beams(first, first, np.full(1, prefixes.blank), np.zeros(1), np.zeros(1), first)
    steps: list[tuple[np.ndarray, np.ndarray]] = []  # the parents and labels of the hypotheses in each frame
    for log_p_N in log_p_FxN:
        beams = _advance(prefixes, beams, log_p_N, limits)
        steps.append((beams.parent_B, beams.last_B))
    found: dict[Text, tuple[float, float, int]] = {}  # log P of all alignments, log P of the best alignment, index
    for text, index in prefixes.final_texts(beams):
        total, best, best_index = found.get(text, (-math.inf, -math.inf, 0))
        logit, path = float(beams.logit_B[index]), float(beams.path_B[index])
        found[text] = float(np.logaddexp(total, logit)), *max((best, best_index), (path, index))
    lm.look_up([text.state for text in found])
    ends = {text: lm.end_log_p(text.state) for text in found}
    scores = {text: row[0] + text.score + text.bonus + lm.alpha * ends[text] for text, row in found.items()}
    least = max(scores.values()) + limits.beam_prune_logp
    ranked = sorted((text for text in found if scores[text] >= least), key=scores.__getitem__, reverse=True)
    paths_FxS = _paths(steps, np.array([found[text][2] for text in ranked]))
    return [
        Result(text, path, found[text][0], text.log_p + ends[text], scores[text])
        for text, path in zip(ranked, paths_FxS.T.tolist())
    ]


def _advance(prefixes: Prefixes, beams: Beams, log_p_N: np.ndarray, limits: Limits) -> Beams:
    """Extends the hypotheses by one frame."""
    parent_C, label_C, text_C, part_C = prefixes.extend(beams, log_p_N, limits)
    logit_C, path_C = (x_B[parent_C] + log_p_N[label_C] for x_B in (beams.logit_B, beams.path_B))
    order_C, starts_G = prefixes.group(text_C, part_C, label_C, path_C)  # the most probable alignment comes first
    best_G, logit_G = order_C[starts_G], np.logaddexp.reduceat(logit_C[order_C], starts_G)
    text_G, part_G = text_C[best_G], part_C[best_G]
    score_G = logit_G + np.frombuffer(prefixes.text_scores)[text_G] + np.frombuffer(prefixes.part_scores)[part_G]
    kept = np.flatnonzero(score_G >= score_G.max() + limits.beam_prune_logp)
    if limits.recombine:
        best = prefixes.recombine(text_G[kept], part_G[kept], label_C[best_G[kept]], score_G[kept])
        is_worse = np.ones(len(kept), bool)
        is_worse[best] = False
        kept = kept[np.lexsort((-score_G[kept], is_worse))[: limits.beam_width]]
    kept = kept[np.argsort(-score_G[kept], kind='stable')[: limits.beam_width]]
    if prefixes.hotwords.words:
        total_G = score_G + np.frombuffer(prefixes.text_bonuses)[text_G]
        if prefixes.hotwords.prefix_boosts:
            boosted_G = total_G + np.frombuffer(prefixes.part_bonuses)[part_G]
            kept = np.union1d(kept, _boosted(score_G, boosted_G, limits))
        kept = kept[np.argsort(-total_G[kept], kind='stable')]
    if limits.prune_history:
        best = -np.arange(len(kept))
        kept = kept[prefixes.recombine(text_G[kept], part_G[kept], label_C[best_G[kept]], best)]
    best_B = best_G[kept]
    return Beams(text_G[kept], part_G[kept], label_C[best_B], logit_G[kept], path_C[best_B], parent_C[best_B])


def _boosted(score_G: np.ndarray, boosted_G: np.ndarray, limits: Limits) -> list[int]:
    """Returns the indices of the hypotheses that hotwords keep in the beam, at most `beam_width`.

    A hypothesis is removed only because of hypotheses that score higher both with and without boosts. It is removed if
    one of these is better by more than `-beam_prune_logp`, or if there are at least `beam_width` of them.

    Args:
        score_G: The scores without hotwords.
        boosted_G: The scores with hotwords, including provisional boosts.
        limits: The pruning thresholds.
    """
    prune, order_G = limits.beam_prune_logp, np.argsort(-score_G, kind='stable')
    ahead_G = np.searchsorted(-score_G[order_G], prune - score_G)  # how many scores are better by more than -prune
    is_near_G = (ahead_G == 0) | (np.maximum.accumulate(boosted_G[order_G])[ahead_G - 1] + prune <= boosted_G)
    near = order_G[is_near_G[order_G]]
    # The first `beam_width` hypotheses displace all others with lower boosted scores.
    near = near[boosted_G[near] >= boosted_G[near[: limits.beam_width]].min()]
    better: list[tuple[int, int]] = []  # per hypothesis: how many are better in both scores, and its index
    boosted: list[float] = []  # the sorted boosted scores of the hypotheses with better scores
    for index in near.tolist():
        better.append((len(boosted) - bisect.bisect_right(boosted, boosted_G[index]), index))
        bisect.insort(boosted, boosted_G[index])
    return [index for count, index in sorted(better)[: limits.beam_width] if count < limits.beam_width]


def _paths(steps: Sequence[tuple[np.ndarray, np.ndarray]], indices_S: np.ndarray) -> np.ndarray:
    """Returns the labels of the alignments that end in the hypotheses with these indices, F x S."""
    path_FxS = np.empty((len(steps), len(indices_S)), np.int64)
    for path_S, (parent_B, label_B) in zip(path_FxS[::-1], reversed(steps)):
        path_S[:], indices_S = label_B[indices_S], parent_B[indices_S]
    return path_FxS
