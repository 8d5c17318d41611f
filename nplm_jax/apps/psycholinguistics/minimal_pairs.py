"""Evaluates models on minimal pairs. Computes log P of sentences, the accuracy, and the surprisal of regions.

Dims: P pairs, L distinct sentences.

References:
    Warstadt et al., BLiMP: the benchmark of linguistic minimal pairs for English, TACL 8, 2020.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nplm_jax.apps.psycholinguistics import measurement
from nplm_jax.apps.psycholinguistics import stimuli as stimuli_lib
from nplm_jax.apps.psycholinguistics.measurement import Options
from nplm_jax.apps.psycholinguistics.stimuli import Stimuli
from nplm_jax.apps.psycholinguistics.tables import Locate
from nplm_jax.data.line_start import LineStart
from nplm_jax.data.stream import RARE_ID
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference import scoring
from nplm_jax.inference.loaded_model import LoadedModel
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.utils.errors import require

TIE = 1e-5  # maximum difference in a tie (nats); float32 rounding depends on the order of summation
TIES = {'half': 0.5, 'wrong': 0.0, 'right': 1.0}  # how many correct pairs a tie counts as; the first is the default
SUBSETS = ('all', 'differing', 'full')


class EncodedPairs(NamedTuple):
    """Tokenized pairs.

    Attributes:
        lines: The ids of each distinct sentence, int32, without boundary tokens.
        rows_Px2: The indices in `lines` of the good and the bad sentence of each pair.
        start: The unscored context of each sentence.
        subsets: The mask of the pairs (P) in each subset of SUBSETS. A pair is in `differing` if the vocabulary
            contains all its `differing_words`, and in `full` if the vocabulary contains all its words.
    """

    lines: list[np.ndarray]
    rows_Px2: np.ndarray
    start: LineStart
    subsets: dict[str, np.ndarray]


def to_stimuli(pairs: Sequence[tuple[str, str]], locate: Locate) -> Stimuli:
    """Converts pairs to stimuli with one item per sentence: good, bad, good, bad, ...

    Args:
        pairs: The good and the bad sentence of each pair.
        locate: A function from the index of a pair to its location in error messages.

    Raises:
        BadInput: A sentence is empty or invalid.
    """
    sentences = [sentence for pair in pairs for sentence in pair]
    columns = {'sentence': sentences}
    return stimuli_lib.from_sentences(columns, 'sentence', 'pairs', locate=lambda row: locate(row // 2))[0]


def encode(stimuli: Stimuli, vocabulary: Vocabulary, options: Options) -> EncodedPairs:
    """Tokenizes the sentences as in `nplm surprisal`, and merges duplicates.

    Args:
        stimuli: The sentences, from `to_stimuli`.
        vocabulary: The vocabulary of the model.
        options: The measurement options.

    Raises:
        BadInput: A word has no tokens.
    """
    table, encoded, contexts = measurement.cut_items(vocabulary, stimuli, options)
    numbers: dict[bytes, int] = {}
    rows = [numbers.setdefault(line.tobytes(), len(numbers)) for line in encoded]
    lines = [np.frombuffer(key, np.int32) for key in numbers]
    tokens = [table.tokens_T[line] for line in table.lines]
    pairs = list(zip(tokens[::2], tokens[1::2]))
    differing = [_are_known(vocabulary, differing_words(*pair)) for pair in pairs]
    full = [_are_known(vocabulary, [*good, *bad]) for good, bad in pairs]
    start = LineStart.of(vocabulary)
    if options.context is not None:
        start = LineStart(tuple(vocabulary.encode(contexts[0]).tolist()))
    masks = np.ones(len(pairs), bool), np.array(differing), np.array(full)
    return EncodedPairs(lines, np.array(rows).reshape(-1, 2), start, dict(zip(SUBSETS, masks)))


def _are_known(vocabulary: Vocabulary, tokens: Sequence[str]) -> bool:
    """Returns whether the vocabulary contains all tokens. A literal RARE counts as unknown."""
    return bool((vocabulary.encode(tokens) != RARE_ID).all())


def differing_words(good: Sequence[str], bad: Sequence[str]) -> list[str]:
    """Returns the words of two sentences that lie between their common prefix and their common suffix.

    Examples:
        >>> differing_words('the cats sleep .'.split(), 'the cats sleeps .'.split())
        ['sleep', 'sleeps']
        >>> differing_words('a red old cat'.split(), 'a old red cat'.split())
        ['red', 'old', 'old', 'red']
    """
    shorter = min(len(good), len(bad))
    first = next((i for i in range(shorter) if good[i] != bad[i]), shorter)
    last = next((i for i in range(shorter - first) if good[-1 - i] != bad[-1 - i]), shorter - first)
    return [*good[first : len(good) - last], *bad[first : len(bad) - last]]


def log_p(model: LanguageModel, encoded: EncodedPairs) -> np.ndarray:
    """Returns the float64 log P of the good and the bad sentence of each pair in nats, P x 2."""
    scored = scoring.score(model, encoded.lines, encoded.start)
    log_p_L = np.array([line.log10_p_T.sum() for line in scored]) * scoring.LOG_10
    return log_p_L[encoded.rows_Px2]


def differences(log_p_Px2: np.ndarray) -> np.ndarray:
    """Returns log P(good) - log P(bad) of each pair, in nats. Returns 0 if both sentences have probability zero.

    Args:
        log_p_Px2: Log P of the good and the bad sentence of each pair, in nats.

    Raises:
        BadInput: A log-probability is not a number.
    """
    require(not np.isnan(log_p_Px2).any(), 'log P', 'nan', 'must be a number')
    with np.errstate(invalid='ignore'):
        difference_P = log_p_Px2[:, 0] - log_p_Px2[:, 1]
    return np.where(log_p_Px2[:, 0] == log_p_Px2[:, 1], 0, difference_P)


def count(difference_P: np.ndarray, groups: Sequence[str], subset_P: np.ndarray) -> dict[str, list[int]]:
    """Counts pairs by group.

    Args:
        difference_P: The result of `differences`, in nats.
        groups: The group of each pair, such as its paradigm.
        subset_P: The mask of the pairs to count.

    Returns:
        The number of pairs, of correct pairs and of ties in each group.
    """
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    group_P = np.array([numbers[group] for group in groups])
    counted = subset_P, subset_P & (difference_P > TIE), subset_P & (np.abs(difference_P) <= TIE)
    counts_GxK = np.transpose([np.bincount(group_P[is_counted_P], minlength=len(numbers)) for is_counted_P in counted])
    return dict(zip(numbers, counts_GxK.tolist()))


def accuracy(counts: Sequence[float], ties: str = 'half') -> float:
    """Returns the fraction of correct pairs, or NaN if there are no pairs.

    Args:
        counts: The number of pairs, of correct pairs and of ties, from `count`.
        ties: A key of TIES. With `half`, a model that assigns equal probabilities to all sentences is at chance (50%).
            lm-evaluation-harness uses `right`.
    """
    num_pairs, num_correct, num_ties = counts
    return (num_correct + TIES[ties] * num_ties) / num_pairs if num_pairs else math.nan


def region_surprisals(loaded: LoadedModel, stimuli: Stimuli, regions: Sequence[slice], options: Options) -> np.ndarray:
    """Returns the total float64 surprisal of the region in each sentence in bits, P x 2.

    Args:
        loaded: The model.
        stimuli: The sentences, from `to_stimuli`.
        regions: The slice of words that forms the region in each sentence.
        options: The measurement options.
    """
    bits_W = measurement.measure({'model': loaded}, stimuli, options)['surprisal_model']
    sums = [sum(bits_W[rows.start : rows.stop][region]) for rows, region in zip(stimuli.items, regions)]
    return np.array(sums, float).reshape(-1, 2)
