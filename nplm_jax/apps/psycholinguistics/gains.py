"""Measures how much a model's surprisals improve predictions of reading times, by cross-validated linear regression.

A story is an independent text, such as an item of an experiment.

Dims: W words, S stories, B baseline predictors, A added predictors, C predictors of a regression, R resamples.

References:
    Goodkind and Bicknell, Predictive power of word surprisal for reading times is a linear function of language model
    quality, CMCL 2018.
"""

import dataclasses
import unicodedata
from collections.abc import Callable

import numpy as np
from scipy import stats

from nplm_jax.apps.psycholinguistics.stimuli import shift

NUM_BEFORE = 2  # number of preceding words whose predictors are also used
RESAMPLES = 10_000
NO_SENTENCE_END = ('mr.', 'mrs.', 'ms.', 'dr.', 'st.')
_OPENING = '\'"“‘([「『（'
_CLOSING = '\'"”’)]」』）'


@dataclasses.dataclass(frozen=True)
class Gain:
    """The gain of a model over the baseline.

    Attributes:
        sums_S: For each story, the held-out log-likelihood with the model minus the held-out log-likelihood without it,
            in nats. Each regression is fitted to the other folds.
        counts_S: The number of words in each story.
    """

    sums_S: np.ndarray
    counts_S: np.ndarray

    @property
    def per_word(self) -> float:
        """The gain per word, in nats."""
        return float(self.sums_S.sum() / self.counts_S.sum())


def with_words_before(values_W: np.ndarray, story_W: np.ndarray) -> np.ndarray:
    """Returns the values of each word and of the words before it, W x (1 + NUM_BEFORE).

    Values for words outside the story are NaN.
    """
    return np.stack([shift(values_W, story_W, distance) for distance in range(NUM_BEFORE + 1)], axis=1)


def ends_sentence(word: str) -> bool:
    """Returns whether a word ends a sentence, according to its punctuation."""
    is_end = word.rstrip(_CLOSING).endswith(tuple('.?!。？！｡'))
    return is_end and word.lstrip(_OPENING).lower() not in NO_SENTENCE_END


def sentence_positions(words: list[str], story_W: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Finds the position of each word in its sentence.

    Args:
        words: The words, with their punctuation.
        story_W: The story of each word. The end of a story also ends a sentence.

    Returns:
        Three arrays of length W: the position of each word in its sentence, counted from 1; whether the word is the
        first in its sentence; and whether it is the last.
    """
    last_W = np.array([ends_sentence(word) for word in words])
    last_W |= np.append(story_W[1:] != story_W[:-1], True)
    first_W = np.append(True, last_W[:-1])
    starts = np.flatnonzero(first_W)
    position_W = np.arange(len(words)) - np.repeat(starts, np.diff(np.append(starts, len(words)))) + 1
    return position_W, first_W, last_W


def make_baseline(
    words: list[str], story_W: np.ndarray, zone_W: np.ndarray, length_W: np.ndarray, log_frequency_W: np.ndarray
) -> np.ndarray:
    """Returns the baseline predictors, W x B. They are NaN for words with too few preceding words.

    The length, the log frequency and their product are predictors for the word and for the NUM_BEFORE words before it.
    Punctuation is a predictor for the word and the previous word. The remaining predictors are the position in the
    sentence, the position in the story, and the logarithm of the position in the story.

    Args:
        words: The words, with their punctuation.
        story_W: The story of each word.
        zone_W: The position of each word in its story, from 1.
        length_W: The length of each word (characters).
        log_frequency_W: The log frequency of each word.
    """
    position_W, _, _ = sentence_positions(words, story_W)
    punctuation_W = np.array([not (_is_letter(word[0]) and _is_letter(word[-1])) for word in words])
    of_words = length_W, log_frequency_W, length_W * log_frequency_W
    predictors = [with_words_before(values_W, story_W) for values_W in of_words]
    predictors += [with_words_before(punctuation_W, story_W)[:, :2], position_W, zone_W, np.log(zone_W)]
    return np.column_stack(predictors)


def _is_letter(character: str) -> bool:
    """Returns whether a character is a letter, digit or combining mark. Thai words can end in combining marks."""
    return character.isalnum() or unicodedata.category(character).startswith('M')


def choose_words(words: list[str], story_W: np.ndarray, zone_W: np.ndarray, in_vocabulary_W: np.ndarray) -> np.ndarray:
    """Selects the words to analyse.

    Excludes the first and last word of each sentence, the first NUM_BEFORE + 1 words of each story, and words that are
    unknown or follow an unknown word.
    """
    _, first_W, last_W = sentence_positions(words, story_W)
    known_W = in_vocabulary_W & np.append(True, in_vocabulary_W[:-1])
    return known_W & ~first_W & ~last_W & (zone_W > NUM_BEFORE + 1)  # + 1: GPT-3 assigns no surprisal to the first word


def centre(values: np.ndarray, story_W: np.ndarray) -> np.ndarray:
    """Subtracts the mean of each story from each column."""
    _, index_W, counts_S = np.unique(story_W, return_inverse=True, return_counts=True)
    values = np.asarray(values, float)
    sums = np.zeros((len(counts_S), *values.shape[1:]))
    np.add.at(sums, index_W, values)
    return values - (sums.T / counts_S).T[index_W]


def gain(
    times_W: np.ndarray,
    story_W: np.ndarray,
    baseline_WxB: np.ndarray,
    added_WxA: np.ndarray,
    unit_W: np.ndarray | None = None,
    num_folds: int = 0,
) -> Gain:
    """Returns the cross-validated gain of a model's predictors over the baseline.

    Args:
        times_W: The reading times, or their logarithms.
        story_W: The story of each word. Times and predictors are centred by story.
        baseline_WxB: The baseline predictors.
        added_WxA: The predictors of the model, W x A. Must be finite.
        unit_W: The cross-validation unit of each word, such as an item whose conditions are stories. The default is the
            story.
        num_folds: The number of folds. Units are assigned to the folds in turn. If 0, each unit is a fold.

    Returns:
        The gain, with one entry per unit.
    """
    units, unit_W = np.unique(story_W if unit_W is None else unit_W, return_inverse=True)
    fold_W = unit_W % (num_folds or len(units))
    both_WxC = np.column_stack([baseline_WxB, added_WxA])
    log_p_W = held_out(times_W, story_W, both_WxC, fold_W) - held_out(times_W, story_W, baseline_WxB, fold_W)
    return Gain(np.bincount(unit_W, log_p_W), np.bincount(unit_W))


def held_out(times_W: np.ndarray, story_W: np.ndarray, columns_WxC: np.ndarray, fold_W: np.ndarray) -> np.ndarray:
    """Returns the log-likelihood of each time, in nats, under the regression fitted to the other folds.

    Args:
        times_W: The reading times, or their logarithms.
        story_W: The story of each word. Times and predictors are centred by story.
        columns_WxC: The predictors.
        fold_W: The fold of each word.
    """
    times_W, columns_WxC = centre(times_W, story_W), centre(columns_WxC, story_W)
    log_p_W = np.empty(len(times_W))
    for fold in np.unique(fold_W):
        is_left_out = fold_W == fold
        slopes_C = _fit(times_W[~is_left_out], columns_WxC[~is_left_out])
        variance = np.mean((times_W[~is_left_out] - columns_WxC[~is_left_out] @ slopes_C) ** 2)
        residuals = times_W[is_left_out] - columns_WxC[is_left_out] @ slopes_C
        log_p_W[is_left_out] = -0.5 * (np.log(2 * np.pi * variance) + residuals**2 / variance)
    return log_p_W


def _fit(times_W: np.ndarray, columns_WxC: np.ndarray) -> np.ndarray:
    """Returns the minimum-norm least-squares slopes."""
    return np.linalg.lstsq(columns_WxC, times_W)[0]


def explained_variance(times_W: np.ndarray, story_W: np.ndarray, columns_WxC: np.ndarray) -> float:
    """Returns the within-story R^2 of a regression over all stories."""
    times_W, columns_WxC = centre(times_W, story_W), centre(columns_WxC, story_W)
    return float(1 - np.sum((times_W - columns_WxC @ _fit(times_W, columns_WxC)) ** 2) / np.sum(times_W**2))


def slopes(times_W: np.ndarray, story_W: np.ndarray, baseline_WxB: np.ndarray, added_WxA: np.ndarray) -> list[float]:
    """Returns the slopes of the model's predictors in a regression over all stories."""
    columns_WxC = centre(np.column_stack([baseline_WxB, added_WxA]), story_W)
    return _fit(centre(times_W, story_W), columns_WxC)[baseline_WxB.shape[1] :].tolist()


def interval(statistic: Callable[[np.ndarray], np.ndarray], num_stories: int, seed: int = 0) -> tuple[float, float]:
    """Returns the 95% percentile bootstrap interval of a statistic over stories.

    Args:
        statistic: A function that maps resampled story indices (R x S) to the statistic of each resample (R).
        num_stories: The number of stories, S.
        seed: The random seed for resampling.

    Returns:
        The lower and upper ends of the interval.
    """
    found = stats.bootstrap(
        (np.arange(num_stories),),
        lambda stories_RxS, axis: statistic(stories_RxS),
        n_resamples=RESAMPLES,
        batch=1000,
        vectorized=True,
        method='percentile',
        rng=np.random.default_rng(seed),
    )
    low, high = found.confidence_interval
    return float(low), float(high)


def gain_interval(sums_S: np.ndarray, counts_S: np.ndarray) -> tuple[float, float]:
    """Returns `interval` for the gain per word."""
    return interval(mean_gain(sums_S, counts_S), len(counts_S))


def mean_gain(sums_S: np.ndarray, counts_S: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function for `interval` that computes the gain per word."""
    return lambda stories_RxS: sums_S[stories_RxS].sum(1) / counts_S[stories_RxS].sum(1)
