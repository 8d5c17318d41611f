"""Token ids on the device, windows into them, and the order in which training visits them.

Dims: T words of a stream, B batch, N context words (the paper's n-1).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.data.corpora import Corpus, Span
from nplm_jax.data.vocabulary import RARE_ID, Vocabulary


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A corpus as ids: the whole stream as one int32 array on the device, and its three splits."""

    tokens_T: jax.Array
    train: Span
    valid: Span
    test: Span
    vocabulary: Vocabulary

    @property
    def splits(self) -> dict[str, Span]:
        return {'train': self.train, 'valid': self.valid, 'test': self.test}


def from_corpus(corpus: Corpus, vocabulary: Vocabulary) -> Dataset:
    """Encodes the corpus and puts its ids on the default device."""
    return Dataset(jnp.asarray(vocabulary.encode(corpus.words)), *corpus.splits.values(), vocabulary)


def windows(tokens_T: jax.Array, positions_B: jax.Array, num_context: int) -> tuple[jax.Array, jax.Array]:
    """The N words before each position in reading order, the most recent last, and the word at it.

    Before the start of the stream stands the rare-word symbol. Pure; to be called inside jit.
    Returns: contexts_BxN and targets_B, int32.
    """
    where_BxN = positions_B[:, None] + jnp.arange(-num_context, 0, dtype=positions_B.dtype)[None, :]
    contexts_BxN = jnp.where(where_BxN >= 0, tokens_T[jnp.maximum(where_BxN, 0)], RARE_ID)
    return contexts_BxN, tokens_T[positions_B]


def epoch_order(seed: int, epoch: int, train: Span) -> jax.Array:
    """A random order of the training positions: a pure function of (seed, epoch). int32, one a word.

    Step s of an epoch takes elements [s*B, (s+1)*B); the last T mod B positions of the order wait for
    another epoch, whose order differs.
    """
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 1), epoch)
    return jax.random.permutation(key, jnp.arange(train.start, train.stop, dtype=jnp.int32))


def stream_order(seed: int, epoch: int, train: Span, streams: int, bptt_length: int) -> jax.Array:
    """An order in which `streams` readers go through as many parts of the training words side by side. int32.

    Update s takes elements [s*B, (s+1)*B), B = streams * bptt_length: the next `bptt_length` positions of the first
    reader, then of the second, and so on. The readers' parts lie one after another from a random word on, a pure
    function of (seed, epoch), and go on at the first training word after the last one.
    """
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 1), epoch)
    updates = len(train) // (streams * bptt_length)
    starts_S = jax.random.randint(key, (), 0, len(train)) + updates * bptt_length * jnp.arange(streams)
    steps_UxT = jnp.arange(updates * bptt_length).reshape(updates, bptt_length)
    return (train.start + (starts_S[None, :, None] + steps_UxT[:, None, :]) % len(train)).reshape(-1).astype(jnp.int32)


def unigram_log_probabilities(data: Dataset) -> np.ndarray:
    """log of the training words' relative frequencies with half a count added to each: float32, |V|."""
    span = data.train
    counts = np.bincount(np.asarray(data.tokens_T[span.start : span.stop]), minlength=len(data.vocabulary)) + 0.5
    return np.log(counts / counts.sum()).astype(np.float32)
