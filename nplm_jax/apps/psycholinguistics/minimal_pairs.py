"""Minimal pairs as models read them: log P of whole sentences, correct pairs and ties, surprisal of regions.

Dims: P pairs, L different sentences.

References:
    Warstadt et al., BLiMP: the benchmark of linguistic minimal pairs for English, TACL 8, 2020.
"""

import collections
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nplm_jax.apps.psycholinguistics import measurement
from nplm_jax.apps.psycholinguistics import stimuli as stimuli_lib
from nplm_jax.apps.psycholinguistics.measurement import Options
from nplm_jax.apps.psycholinguistics.stimuli import Stimuli
from nplm_jax.apps.psycholinguistics.tables import Place
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.inference import scoring
from nplm_jax.inference.loaded_model import LoadedModel
from nplm_jax.inference.scoring import LineStart
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.utils.errors import require

TIE = 1e-5  # nats: rounding of float32 in two orders of the same sum
TIES = {'half': 0.5, 'wrong': 0.0, 'right': 1.0}  # what a tie counts; the first is the default
SUBSETS = ('all', 'differing', 'full')


class EncodedPairs(NamedTuple):
    """Pairs as a model reads them.

    Attributes:
        lines: The ids of each different sentence, int32, without marks.
        rows_Px2: The lines of the good and of the bad sentence of each pair.
        start: What stands before a sentence and is not scored.
        subsets: The pairs that count, a mask by each of SUBSETS: all; those whose differing words are in the
            vocabulary, which are those between the beginning and the end that both sentences share; those with all
            words in it.
    """

    lines: list[np.ndarray]
    rows_Px2: np.ndarray
    start: LineStart
    subsets: dict[str, np.ndarray]


def to_stimuli(pairs: Sequence[tuple[str, str]], place: Place) -> Stimuli:
    """Returns the sentences as items, the good one of each pair before the bad one.

    Args:
        pairs: The good and the bad sentence of each pair.
        place: Returns the beginning of an error message on a pair, from 0.

    Raises:
        BadInput: A sentence is empty or not allowed.
    """
    sentences = [sentence for pair in pairs for sentence in pair]
    columns = {'sentence': sentences}
    return stimuli_lib.from_sentences(columns, 'sentence', 'pairs', place=lambda row: place(row // 2))[0]


def encode(stimuli: Stimuli, vocabulary: Vocabulary, options: Options) -> EncodedPairs:
    """Cuts the sentences as `nplm surprisal` does, and numbers the different ones.

    Raises:
        BadInput: A word has no token.
    """
    table, encoded, contexts = measurement.cut_items(vocabulary, stimuli, options)
    numbers: dict[bytes, int] = {}
    rows = [numbers.setdefault(line.tobytes(), len(numbers)) for line in encoded]
    lines = [np.frombuffer(key, np.int32) for key in numbers]
    tokens = [table.tokens_T[line] for line in table.lines]
    pairs = list(zip(tokens[::2], tokens[1::2]))
    differing = [all(token in vocabulary.ids for token in differing_words(*pair)) for pair in pairs]
    full = [all(token in vocabulary.ids for sentence in pair for token in sentence) for pair in pairs]
    start = LineStart.of(vocabulary)
    if options.context is not None:
        start = LineStart(tuple(vocabulary.encode(contexts[0]).tolist()))
    masks = np.ones(len(pairs), bool), np.array(differing), np.array(full)
    return EncodedPairs(lines, np.array(rows).reshape(-1, 2), start, dict(zip(SUBSETS, masks)))


def differing_words(good: Sequence[str], bad: Sequence[str]) -> list[str]:
    """Returns the words of two sentences between the beginning and the end that both share.

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
    """Returns log P of the good and of the bad sentence of each pair, float64, P x 2, nats."""
    scored = scoring.score(model, encoded.lines, encoded.start)
    log_p_L = np.array([line.log10_p_T.sum() for line in scored]) * scoring.LOG_10
    return log_p_L[encoded.rows_Px2]


def differences(log_p_Px2: np.ndarray) -> np.ndarray:
    """Returns log P of the good minus that of the bad sentence; 0 where both are impossible.

    Raises:
        BadInput: A log-probability is not a number.
    """
    require(not np.isnan(log_p_Px2).any(), 'log P', 'nan', 'the model gives a sentence no probability')
    with np.errstate(invalid='ignore'):
        difference_P = log_p_Px2[:, 0] - log_p_Px2[:, 1]
    return np.where(log_p_Px2[:, 0] == log_p_Px2[:, 1], 0, difference_P)


def count(
    difference_P: np.ndarray, groups: Sequence[str], subset_P: np.ndarray, tie: float = TIE
) -> dict[str, list[int]]:
    """Returns for each group the numbers of pairs, of good sentences that are likelier, and of ties.

    Args:
        difference_P: What `differences` returns, nats.
        groups: The group of each pair, such as its paradigm.
        subset_P: The pairs that count.
        tie: The difference up to which two sentences are equally likely, nats.
    """
    counts: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0, 0])
    for group, difference, is_in in zip(groups, difference_P.tolist(), subset_P.tolist()):
        row = counts[group]
        row[0] += is_in
        row[1] += is_in and difference > tie
        row[2] += is_in and abs(difference) <= tie
    return {group: [int(n) for n in row] for group, row in counts.items()}


def accuracy(counts: Sequence[float], ties: str = 'half') -> float:
    """Returns the share of correct pairs; nan without pairs.

    Args:
        counts: The numbers of pairs, of good sentences that are likelier, and of ties, as `count` returns them.
        ties: A value of TIES. `half` gives a model that cannot tell the sentences apart 50%, which is chance;
            lm-evaluation-harness counts a tie as `right`.
    """
    num_pairs, num_correct, num_ties = counts
    return (num_correct + TIES[ties] * num_ties) / num_pairs if num_pairs else math.nan


def region_surprisals(loaded: LoadedModel, stimuli: Stimuli, regions: Sequence[slice], options: Options) -> np.ndarray:
    """Returns the surprisal of the region of each sentence, the sum over its words, float64, P x 2, bits.

    Args:
        loaded: A model.
        stimuli: The sentences, from `to_stimuli`.
        regions: The words of the region in each sentence.
        options: As of `nplm surprisal`.
    """
    bits_W = measurement.measure({'model': loaded}, stimuli, options)['surprisal_model']
    sums = [sum(bits_W[rows.start : rows.stop][region]) for rows, region in zip(stimuli.items, regions)]
    return np.array(sums, float).reshape(-1, 2)
