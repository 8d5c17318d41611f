"""Word similarity and analogy tasks: functions that read the tasks and evaluate the vectors of a vocabulary's words.

Dims: V words, D dimensions, P pairs or questions, R resamples of the bootstrap.

References:
    Hill et al., SimLex-999, 2015; Finkelstein et al., Placing search in context (WordSim-353), 2002.
    Mikolov et al., Efficient estimation of word representations in vector space, 2013 (analogies).
"""

from __future__ import annotations

import importlib.util
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from nplm_jax.inference.embeddings import unit_vectors
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.untrusted import decode, read_bytes

RATED = {'simlex999': 'simlex999.txt', 'wordsim353': 'wordsim353.tsv'}
ANALOGIES = 'questions-words.txt'
RESAMPLES = 1000
SEED = 1
INTERVAL = (2.5, 97.5)  # percentiles
_BATCH = 512  # number of questions answered at once


class RatedPair(NamedTuple):
    """Two words in lower case, and the human rating of their similarity."""

    first: str
    second: str
    rating: float


def data_folder() -> pathlib.Path:
    """Returns gensim's folder of tasks. Raises BadInput if gensim is not installed."""
    spec = importlib.util.find_spec('gensim')
    if spec is None or spec.origin is None:
        raise BadInput('gensim', 'is required for the tasks; run `pip install "nplm-jax[studies]"`')
    return pathlib.Path(spec.origin).parent / 'test' / 'test_data'


def read_pairs(path: pathlib.Path) -> list[RatedPair]:
    """Reads rated pairs: two words and a number, separated by tabs. Lines that begin with # are comments.

    Raises:
        BadInput: A line does not have this form, or the file has no pairs.
    """
    pairs = []
    for number, line in _read_lines(path, '#'):
        try:
            first, second, rating = line.split('\t')
            pairs.append(RatedPair(first.lower(), second.lower(), float(rating)))
        except ValueError:
            raise BadInput(f'{path}, line {number}', 'must contain two words and a number, separated by tabs') from None
    require(len(pairs) > 0, 'pairs', 0, f'{path} contains no pairs')
    return pairs


def read_analogies(path: pathlib.Path) -> list[tuple[str, str, str, str]]:
    """Reads questions `a b c d`, in lower case: a is to b as c is to d. Lines with : begin a section.

    Raises:
        BadInput: A line does not have four words, or the file has no questions.
    """
    questions = []
    for number, line in _read_lines(path, ':'):
        words = line.lower().split()
        if len(words) != 4:
            raise BadInput(f'{path}, line {number}', 'must contain four words')
        questions.append((words[0], words[1], words[2], words[3]))
    require(len(questions) > 0, 'questions', 0, f'{path} contains no questions')
    return questions


def _read_lines(path: pathlib.Path, left_out: str) -> Iterator[tuple[int, str]]:
    """Yields the number, from 1, and the text of each line, except blank lines and lines that begin with `left_out`."""
    for number, line in enumerate(decode(str(path), read_bytes(str(path), path)).splitlines(), start=1):
        if line.strip() and not line.startswith(left_out):
            yield number, line


def rate(vectors_VxD: np.ndarray, ids: Mapping[str, int], pairs: Sequence[RatedPair]) -> dict[str, Any]:
    """Returns Spearman's correlation of the cosines with the ratings, with its interval and the number of pairs.

    Args:
        vectors_VxD: The vectors of all words.
        ids: The row of each word. A pair counts if both of its words have rows.
        pairs: The pairs.

    Returns:
        `spearman` and `interval`, which are None if fewer than three pairs count, and also `counted` and `of`.
    """
    kept = [pair for pair in pairs if pair.first in ids and pair.second in ids]
    sizes = {'counted': len(kept), 'of': len(pairs)}
    if len(kept) < 3:
        return {'spearman': None, 'interval': None, **sizes}
    unit_VxD = unit_vectors(vectors_VxD)
    cosines_P = np.array([unit_VxD[ids[pair.first]] @ unit_VxD[ids[pair.second]] for pair in kept])
    ratings_P = np.array([pair.rating for pair in kept])
    rows_RxP = np.random.default_rng(SEED).integers(0, len(kept), (RESAMPLES, len(kept)))
    value = float(spearman(cosines_P[None], ratings_P[None])[0])
    spread_R = spearman(cosines_P[rows_RxP], ratings_P[rows_RxP])
    return {'spearman': value, 'interval': np.nanpercentile(spread_R, INTERVAL).tolist(), **sizes}


def spearman(first_RxP: np.ndarray, second_RxP: np.ndarray) -> np.ndarray:
    """Returns the rank correlation of each row, with mean ranks for ties, or nan if the values are constant."""
    ranks = [stats.rankdata(values, axis=1) for values in (first_RxP, second_RxP)]
    x, y = (rank - rank.mean(axis=1, keepdims=True) for rank in ranks)
    with np.errstate(invalid='ignore'):
        return (x * y).sum(1) / np.sqrt((x * x).sum(1) * (y * y).sum(1))


def answer(
    vectors_VxD: np.ndarray, ids: Mapping[str, int], questions: Sequence[tuple[str, str, str, str]]
) -> dict[str, Any]:
    """Returns the share of analogies that are answered correctly, with its interval and the number of questions.

    The answer is the word whose unit vector has the largest cosine with b - a + c, excluding a, b and c.

    Args:
        vectors_VxD: The vectors of all words, which are the candidates.
        ids: The row of each word. A question counts if all four of its words have rows.
        questions: The questions.
    """
    rows = [[ids[word] for word in question] for question in questions if all(word in ids for word in question)]
    sizes = {'counted': len(rows), 'of': len(questions)}
    if not rows:
        return {'accuracy': None, 'interval': None, **sizes}
    unit_VxD, rows_Px4, right = unit_vectors(vectors_VxD).astype(np.float32), np.array(rows), []
    for start in range(0, len(rows), _BATCH):
        a, b, c, d = rows_Px4[start : start + _BATCH].T
        cosines_BxV = (unit_VxD[b] - unit_VxD[a] + unit_VxD[c]) @ unit_VxD.T
        for asked in (a, b, c):
            cosines_BxV[np.arange(len(asked)), asked] = -np.inf
        right.append(cosines_BxV.argmax(axis=1) == d)
    right_P = np.concatenate(right)
    shares_R = np.random.default_rng(SEED).binomial(len(right_P), right_P.mean(), RESAMPLES) / len(right_P)
    return {'accuracy': float(right_P.mean()), 'interval': np.percentile(shares_R, INTERVAL).tolist(), **sizes}


def measure(vectors_VxD: np.ndarray, words: Sequence[str], folder: pathlib.Path) -> dict[str, Any]:
    """Returns the results of all tasks in a folder for the vectors of these words."""
    require(len(vectors_VxD) == len(words), 'vectors', len(vectors_VxD), f'must be {len(words)}, one vector per word')
    ids = {word: i for i, word in enumerate(words)}
    ratings = {name: rate(vectors_VxD, ids, read_pairs(folder / file)) for name, file in RATED.items()}
    analogies = answer(vectors_VxD, ids, read_analogies(folder / ANALOGIES))
    return {'dimension': int(np.shape(vectors_VxD)[1]), **ratings, 'analogies': analogies}
