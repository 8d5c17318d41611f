"""Corpora as token ids, batches of them, and the order in which training visits the positions.

Dims: S streams, L tokens of each that are read, T targets of each; T also words of a text; V vocabulary.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.data import mapped_arrays, prepared_texts
from nplm_jax.data.corpora import Corpus, Span, Splits
from nplm_jax.data.keyed_permutation import permute
from nplm_jax.data.tokenizers.tokenizer import Tokenizer
from nplm_jax.data.vocabulary import RARE_ID, Vocabulary

MAX_WORDS_IN_MEMORY = 2**25  # words of a stream that is not held in memory


class Size(NamedTuple):
    """The size of a text in tokens, boundary tokens included, in words, in characters, and in bytes of UTF-8."""

    tokens: int
    words: int
    characters: int
    utf8_bytes: int


@dataclasses.dataclass(frozen=True, repr=False)
class Dataset(Splits):
    """A corpus as token ids, and its splits.

    Attributes:
        tokens_T: The whole stream, int32; memory-mapped if it is longer than MAX_WORDS_IN_MEMORY.
        vocabulary: The words of the ids.
        sizes: The size of each split.
        test_sha256: `digest` of the test text; empty if it is unknown.
        has_lines: Whether each line of the text is a paragraph.
        by_lines: Whether `<p>` ends each paragraph, instead of beginning it, and `<text>` is left out: see
            `models.ngram.lines`.
    """

    tokens_T: np.ndarray
    vocabulary: Vocabulary
    sizes: Mapping[str, Size] = dataclasses.field(default_factory=dict)
    test_sha256: str = ''
    has_lines: bool = False
    by_lines: bool = False

    @property
    def train_words(self) -> np.ndarray:
        """The ids of the training words in reading order."""
        return self.tokens_T[self.train.start : self.train.stop]

    def oov(self) -> dict[str, float]:
        """Returns the share of unknown words, which are read as the rare-word symbol, of validation and test words."""
        spans = {'valid': self.valid, 'test': self.test}
        return {name: float((self.tokens_T[s.start : s.stop] == RARE_ID).mean()) for name, s in spans.items()}

    @functools.cached_property
    def device_tokens_T(self) -> jax.Array:
        """The whole stream on the device; all runs on this corpus share it."""
        return jnp.asarray(self.tokens_T)


def from_corpus(corpus: Corpus, vocabulary: Vocabulary) -> Dataset:
    """Returns a corpus as the ids of its words; those of a large one are mapped from a file of the cache."""
    types, type_ids_T = corpus.stream
    token_ids_K = vocabulary.encode(types)
    is_large = isinstance(type_ids_T, np.memmap) and len(type_ids_T) > MAX_WORDS_IN_MEMORY
    tokens_T = prepared_texts.encode(type_ids_T, token_ids_K) if is_large else token_ids_K[type_ids_T]
    tokens_T.flags.writeable = False  # so that a digest of it stays valid
    texts = [type_ids_T[span.start : span.stop] for span in corpus.splits.values()]
    sizes = dict(zip(corpus.splits, measure(corpus.tokenizer, types, texts)))
    test_sha256 = digest(corpus.tokenizer, types, type_ids_T[corpus.test.start : corpus.test.stop])
    spans = corpus.train, corpus.valid, corpus.test
    return Dataset(*spans, tokens_T, vocabulary, sizes, test_sha256, corpus.has_lines)


def digest(tokenizer: Tokenizer, types: Sequence[str], type_ids_T: np.ndarray) -> str:
    """Returns the SHA-256 of a text without its white space: the same however it is cut into tokens.

    Args:
        tokenizer: The tokenizer of the text.
        types: The different tokens.
        type_ids_T: The tokens of the text as numbers of `types`, int.
    """
    letters_K, total = [tokenizer.letters(token) for token in types], hashlib.sha256()
    for part_L in mapped_arrays.parts(type_ids_T):
        total.update(b''.join([letters_K[i] for i in part_L.tolist()]))
    return total.hexdigest()


def measure(tokenizer: Tokenizer, types: Sequence[str], texts: Iterable[np.ndarray]) -> list[Size]:
    """Returns the size of each text, the first token of which begins a word.

    Args:
        tokenizer: The tokenizer of the texts.
        types: The different tokens.
        texts: The tokens of each text as numbers of `types`, int.
    """
    characters_K, bytes_K, begins_blank_K, ends_blank_K, has_text_K = map(np.array, zip(*map(tokenizer.size, types)))
    sizes = []
    for type_ids_T in texts:
        counts_K = mapped_arrays.bincount(type_ids_T, len(types))
        num_words = int(counts_K @ (has_text_K & begins_blank_K))
        if not begins_blank_K.all():  # a token without a blank begins a word where the token before it ends in one
            after_blank = True
            for part_L in mapped_arrays.parts(type_ids_T):
                after_blank_L = np.append(after_blank, ends_blank_K[part_L])
                num_words += int(np.count_nonzero((has_text_K & ~begins_blank_K)[part_L] & after_blank_L[:-1]))
                after_blank = after_blank_L[-1]
        sizes.append(Size(len(type_ids_T), num_words, int(counts_K @ characters_K), int(counts_K @ bytes_K)))
    return sizes


class Batch(NamedTuple):
    """The training examples of an update, and the output layer's extra arrays.

    Attributes:
        ids_SxL: L = `lookback` + T tokens of each stream in reading order, int32.
        targets_SxT: The tokens that follow the last T of them, int32.
        extras: The arrays that the output layer asks for besides (`OutputLayer.make_extras`), such as a distribution to
            sample from or the parameters of a teacher; every device has them in full.
    """

    ids_SxL: jax.Array
    targets_SxT: jax.Array
    extras: Any = None

    @property
    def targets_B(self) -> jax.Array:
        """The targets of the B = S * T examples, stream by stream."""
        return self.targets_SxT.reshape(-1)


def make_batch(tokens_T: jax.Array | np.ndarray, positions_SxT: jax.Array, lookback: int, extras: Any = None) -> Batch:
    """Gathers the words at some positions, and the words before them. Pure; runs inside jit.

    Args:
        tokens_T: The ids of the corpus, int32.
        positions_SxT: The positions of the targets, int32. Those of a stream follow each other.
        lookback: The number of words before the T words that precede the targets; the rare-word symbol stands before
            the start of the corpus.
        extras: See `Batch`.
    """
    tokens_T = jnp.asarray(tokens_T)
    before_SxR = positions_SxT[:, :1] + jnp.arange(-lookback - 1, -1, dtype=positions_SxT.dtype)[None, :]
    indices_SxL = jnp.concatenate([before_SxR, positions_SxT - 1], axis=1)
    ids_SxL = jnp.where(indices_SxL >= 0, tokens_T[jnp.maximum(indices_SxL, 0)], RARE_ID)
    return Batch(ids_SxL, tokens_T[positions_SxT], extras)


def examples(tokens_T: jax.Array | np.ndarray, positions_B: jax.Array, num_context: int) -> tuple[jax.Array, jax.Array]:
    """Returns the words before each position in reading order, B x N, and the word at it: `make_batch` for T = 1."""
    batch = make_batch(tokens_T, positions_B[:, None], num_context - 1)
    return batch.ids_SxL, batch.targets_B


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


def shuffled_positions(seed: int, epoch: int, train: Span, indices: np.ndarray) -> np.ndarray:
    """Returns elements of a random permutation of the training positions, which is computed where it is read.

    Args:
        seed: The run's seed.
        epoch: The epoch, from 0.
        train: The training positions.
        indices: Indices of elements.

    Returns:
        The positions, int64. The permutation is a pure function of (seed, epoch), and another than `epoch_order`'s.
    """
    return train.start + permute(indices, len(train), (seed, 1, epoch))


def stream_positions(
    seed: int, epoch: int, train: Span, num_streams: int, bptt_length: int, indices: np.ndarray
) -> np.ndarray:
    """Returns elements of the order in which parallel streams read the training words, for truncated back-propagation.

    Update u takes elements [u*B, (u+1)*B), B = S * bptt_length: the next `bptt_length` positions of the first stream,
    then those of the second, and so on. The streams read contiguous parts of equal length, the first from a random
    word on, which is a pure function of (seed, epoch); the first training word follows the last one.

    Args:
        seed: The run's seed.
        epoch: The epoch, from 0.
        train: The training positions.
        num_streams: S, the number of parallel streams.
        bptt_length: The number of words that a stream reads in an update.
        indices: Indices of elements; an epoch has `stream_epoch_size` of them.

    Returns:
        The positions, int64.
    """
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 1), epoch)
    first = int(jax.random.randint(key, (), 0, min(len(train), 2**31 - 1)))
    stream_length = stream_epoch_size(train, num_streams, bptt_length) // num_streams
    update, rest = np.divmod(indices.astype(np.int64), num_streams * bptt_length)
    stream, word = np.divmod(rest, bptt_length)
    return train.start + (first + stream * stream_length + update * bptt_length + word) % len(train)


def stream_epoch_size(train: Span, num_streams: int, bptt_length: int) -> int:
    """Returns the number of training words that parallel streams read in an epoch: whole updates only."""
    batch_size = num_streams * bptt_length
    return len(train) // batch_size * batch_size


def unigram_log_probabilities(words_T: np.ndarray, vocabulary_size: int) -> np.ndarray:
    """Returns the log relative frequencies of words after adding 1/2 to each of the V counts, float32, V."""
    return log_frequencies(mapped_arrays.bincount(words_T, vocabulary_size)).astype(np.float32)


def log_frequencies(counts_V: np.ndarray | Sequence[int]) -> np.ndarray:
    """Returns the log of each count's share of all after adding 1/2 to each, float64."""
    smoothed_V = np.asarray(counts_V) + 0.5
    return np.log(smoothed_V / smoothed_V.sum())
