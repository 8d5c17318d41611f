"""Generates a text of any length from a fixed rule and a seed, for cost measurements.

    python -m experiments.cost.scale.generate 100_000_000 text.txt

Words are numbered by rank. Each word depends on a random number of previous words, 0 to 4. Each context has a list of
possible next words. The word at each place in the list is drawn from the Zipf-Mandelbrot law P(rank > r) = (1 + r /
q)^(1 - s) by a hash of the context and the place; the place follows a power law. N-grams therefore repeat as in natural
text, and the number of types grows as T^(1/s), as in a Pitman-Yor process with discount 1/s. Each document has 512
words and is independent of the others. A shorter text is a prefix of a longer one.

Dims: T words in a batch, S documents in a batch, W words in a document.
"""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
from collections.abc import Iterator

import numpy as np

from experiments import study
from nplm_jax.utils.errors import require

SEED = 0
DOCUMENTS, DOCUMENT_WORDS = 8192, 512  # documents per batch, and words per document
LINE_WORDS, PARAGRAPH_WORDS = 32, 128
EXPONENT, OFFSET = 1.45, 8.0  # s and q
PLACE_EXPONENT = 0.7  # P(place > k) = k^-0.7
ORDER_WEIGHTS = (0.2, 0.35, 0.25, 0.13, 0.07)  # probabilities of contexts of 0 to 4 words
_LETTERS = 26
_MAX_LENGTH = 5  # maximum number of letters in a word
MAX_RANK = sum(_LETTERS**k for k in range(1, _MAX_LENGTH + 1)) - 1
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def ranks(num_words: int, seed: int = SEED) -> Iterator[np.ndarray]:
    """Yields the int32 ranks of the words in batches, in reading order. The most frequent word has rank 0."""
    batch = 0
    while num_words > 0:
        yield _batch(batch, seed)[:num_words]
        batch += 1
        num_words -= DOCUMENTS * DOCUMENT_WORDS


def _batch(batch: int, seed: int) -> np.ndarray:
    """Returns the ranks of one batch of documents."""
    rng = np.random.default_rng([seed, batch])
    words_SxW = np.empty((DOCUMENTS, DOCUMENT_WORDS), np.int32)
    limits = np.cumsum(ORDER_WEIGHTS)[:-1]
    contexts = np.zeros((len(ORDER_WEIGHTS), DOCUMENTS), np.uint64)  # hashes of the last 0..4 words
    columns = np.arange(DOCUMENTS)
    for at in range(DOCUMENT_WORDS):
        orders_S = np.searchsorted(limits, rng.random(DOCUMENTS), side='right')
        places_S = np.minimum(rng.random(DOCUMENTS) ** (-1 / PLACE_EXPONENT), 2.0**62).astype(np.uint64)
        contexts[0] = rng.integers(0, 2**63, DOCUMENTS, np.uint64)  # without a context, every draw is independent
        uniform_S = _mix(contexts[orders_S, columns] + places_S * _MIX[0]) >> np.uint64(11)
        tail_S = (uniform_S + np.float64(1)) / 2.0**53
        words_S = np.minimum(OFFSET * (tail_S ** (-1 / (EXPONENT - 1)) - 1), MAX_RANK)
        words_SxW[:, at] = words_S
        new_words_S = words_S.astype(np.uint64) + np.uint64(1)
        # The hash of k words combines the hash of the k-1 words before the last one with the last word.
        contexts[2:] = _mix(contexts[1:-1] * _MIX[1] + new_words_S)
        contexts[1] = _mix(new_words_S)
    return words_SxW.reshape(-1)


def _mix(values: np.ndarray) -> np.ndarray:
    """Returns a uint64 hash of each number (the finalizer of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * _MIX[1]
    values = (values ^ (values >> np.uint64(27))) * _MIX[2]
    return values ^ (values >> np.uint64(31))


def to_text(ranks_T: np.ndarray, in_lines: bool = True) -> bytes:
    """Returns the words in letters: rank 0 is `a`, rank 25 is `z`, and rank 26 is `aa`.

    Args:
        ranks_T: The ranks. The number of ranks is a multiple of DOCUMENT_WORDS, except at the end of the text.
        in_lines: Whether to break lines and to separate paragraphs by a blank line. Otherwise, the text is a single
            line.
    """
    letters_TxL = np.zeros((len(ranks_T), _MAX_LENGTH + 2), np.uint8)
    remaining = ranks_T.astype(np.int32) + 1  # bijective base 26, in which the digits are 1 to 26
    for place in reversed(range(_MAX_LENGTH)):
        quotient = (remaining - 1) // _LETTERS
        letters_TxL[:, place] = np.where(remaining > 0, ord('a') + remaining - 1 - quotient * _LETTERS, 0)
        remaining = np.where(remaining > 0, quotient, 0)
    letters_TxL[:, -2] = ord(' ')
    if in_lines:
        letters_TxL[LINE_WORDS - 1 :: LINE_WORDS, -2] = ord('\n')
        letters_TxL[PARAGRAPH_WORDS - 1 :: PARAGRAPH_WORDS, -1] = ord('\n')
    return letters_TxL[letters_TxL > 0].tobytes()


def write(path: pathlib.Path, num_words: int, seed: int = SEED) -> None:
    """Writes a text of the given number of words."""
    with path.open('wb') as file:
        for ranks_T in ranks(num_words, seed):
            file.write(to_text(ranks_T))
        file.write(b'\n')


@contextlib.contextmanager
def small_text(num_words: int) -> Iterator[str]:
    """Yields the path of a text for --quick in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / 'text.txt'
        write(path, num_words)
        yield str(path)


def define(parser: study.StudyParser) -> None:
    """Adds the command-line flags of the study."""
    parser.add_argument('words', type=study.positive(int), help='number of words to generate')
    parser.add_argument('file', type=pathlib.Path, help='text file to write')
    parser.add_argument('--seed', type=int, default=SEED, help='random seed for generating the text')


def main(flags: study.Flags) -> None:
    """Writes the text."""
    require(flags.seed >= 0, '--seed', flags.seed, 'must be non-negative')
    write(flags.file, flags.words, flags.seed)


if __name__ == '__main__':
    study.run(__doc__, define=define, measure=main)
