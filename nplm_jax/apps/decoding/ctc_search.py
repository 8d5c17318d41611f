"""A prefix beam search over the labels of a CTC model, whose complete words a language model scores.

Dims: F frames, N labels, B hypotheses, C candidates, G different ones, S results.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nplm_jax.apps.decoding.prefixes import Beams, Limits, Prefixes, Text


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
