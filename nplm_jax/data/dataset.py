"""Corpora as token ids, their context windows, and the order in which training visits the positions.

Dims: T words of a stream, B batch, N context words (the paper's n-1), S streams, U updates, V vocabulary.
"""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.data.corpora import Corpus, Span, Splits
from nplm_jax.data.vocabulary import RARE_ID, Vocabulary


@dataclasses.dataclass(frozen=True)
class Dataset(Splits):
    """A corpus as token ids, and its splits.

    Attributes:
        tokens_T: The whole stream, int32.
        vocabulary: The words of the ids.
    """

    tokens_T: np.ndarray
    vocabulary: Vocabulary

    @property
    def train_words(self) -> np.ndarray:
        """The ids of the training words in reading order."""
        return self.tokens_T[self.train.start : self.train.stop]


def from_corpus(corpus: Corpus, vocabulary: Vocabulary) -> Dataset:
    """Returns a corpus as the ids of its words."""
    return Dataset(corpus.train, corpus.valid, corpus.test, vocabulary.encode(corpus.words), vocabulary)


def windows(tokens_T: jax.Array | np.ndarray, positions_B: jax.Array, num_context: int) -> tuple[jax.Array, jax.Array]:
    """Gathers the words before each position and the word at it. Pure; runs inside jit.

    Args:
        tokens_T: The ids of the stream, int32.
        positions_B: Positions in the stream, int32.
        num_context: N, the number of words before each position.

    Returns:
        contexts_BxN in reading order, the most recent word last, with the rare-word id before the start of the
        stream, and targets_B; both int32.
    """
    tokens_T = jnp.asarray(tokens_T)
    indices_BxN = positions_B[:, None] + jnp.arange(-num_context, 0, dtype=positions_B.dtype)[None, :]
    contexts_BxN = jnp.where(indices_BxN >= 0, tokens_T[jnp.maximum(indices_BxN, 0)], RARE_ID)
    return contexts_BxN, tokens_T[positions_B]


def consecutive_positions(span: Span, size: int) -> np.ndarray:
    """Returns the positions of `span` in blocks of `size`, int32, S x B; the last block repeats the last position."""
    num_blocks = -(-len(span) // size)
    positions = np.minimum(span.start + np.arange(num_blocks * size), span.stop - 1)
    return positions.astype(np.int32).reshape(num_blocks, size)


def epoch_order(seed: int, epoch: int, train: Span) -> jax.Array:
    """Returns a random permutation of the training positions: a pure function of (seed, epoch).

    Step s of an epoch takes elements [s*B, (s+1)*B). The last elements, which do not fill a batch, are not
    visited in this epoch; another epoch has another order.

    Args:
        seed: The run's seed.
        epoch: The epoch, from 0.
        train: The training positions.

    Returns:
        positions_T, int32.
    """
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 1), epoch)
    return jax.random.permutation(key, jnp.arange(train.start, train.stop, dtype=jnp.int32))


def stream_order(seed: int, epoch: int, train: Span, num_streams: int, bptt_length: int) -> jax.Array:
    """Returns an order in which parallel streams read the training words, for truncated back-propagation through time.

    Update u takes elements [u*B, (u+1)*B), B = S * bptt_length: the next `bptt_length` positions of the first stream,
    then those of the second, and so on. The streams read contiguous parts of equal length, the first from a random
    word on, which is a pure function of (seed, epoch); the first training word follows the last one.

    Args:
        seed: The run's seed.
        epoch: The epoch, from 0.
        train: The training positions.
        num_streams: S, the number of parallel streams.
        bptt_length: The number of words that a stream reads in an update.

    Returns:
        positions, int32, of length U*B.
    """
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 1), epoch)
    updates = len(train) // (num_streams * bptt_length)
    starts_S = jax.random.randint(key, (), 0, len(train)) + updates * bptt_length * jnp.arange(num_streams)
    steps_UxT = jnp.arange(updates * bptt_length).reshape(updates, bptt_length)
    return (train.start + (starts_S[None, :, None] + steps_UxT[:, None, :]) % len(train)).reshape(-1).astype(jnp.int32)


def unigram_log_probabilities(words_T: np.ndarray, vocabulary_size: int) -> np.ndarray:
    """Returns the log relative frequencies of words after adding 1/2 to each of the V counts, float32, V."""
    return log_frequencies(np.bincount(words_T, minlength=vocabulary_size)).astype(np.float32)


def log_frequencies(counts_V: np.ndarray | Sequence[int]) -> np.ndarray:
    """Returns the log of each count's share of all after adding 1/2 to each, float64."""
    smoothed_V = np.asarray(counts_V) + 0.5
    return np.log(smoothed_V / smoothed_V.sum())
