"""Builds batches of training examples, and determines the order of training positions.

Dims: S streams, L input tokens per stream, T targets per stream or tokens of a text.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.data.keyed_permutation import permute
from nplm_jax.data.stream import RARE_ID, Span


class Batch(NamedTuple):
    """The training examples of an update, with extra arrays for the output layer.

    Attributes:
        ids_SxL: The L = `Layout.lookback` + T input tokens of each stream in reading order, int32.
        targets_SxT: The token that follows each of the last T input tokens, int32.
        streams_S: The index of each stream, int32, used to derive its random keys.
        starts_SxL: Whether each token begins a line. Contexts do not extend across the start of a line. None if the
            text is read as one stream.
        extras: Extra arrays of the output layer (`OutputLayer.make_extras`), such as a sampling distribution. They are
            replicated on every device.
        teachers: The parameters of a `Distilled` network's teachers, replicated on every device.
        affixes_VxK: The affixes of each word, replicated on every device, or None; see `training.affixes`.
    """

    ids_SxL: jax.Array
    targets_SxT: jax.Array
    streams_S: jax.Array
    starts_SxL: jax.Array | None = None
    extras: Any = None
    teachers: Any = ()
    affixes_VxK: Any = None

    @property
    def targets_B(self) -> jax.Array:
        """The targets of all B = S * T examples as a flat array, one stream after another."""
        return self.targets_SxT.reshape(-1)

    def recent(self, lookback: int) -> 'Batch':
        """Returns the batch with its contexts shortened to the given `lookback`."""
        first = self.ids_SxL.shape[1] - self.targets_SxT.shape[1] - lookback
        starts_SxL = None if self.starts_SxL is None else self.starts_SxL[:, first:]
        return self._replace(ids_SxL=self.ids_SxL[:, first:], starts_SxL=starts_SxL)


class Layout(NamedTuple):
    """The layout of the examples in an update, with S streams of T targets each and B = S * T.

    Attributes:
        lookback: The number of context tokens before the T input tokens.
        bptt_length: The number of targets per stream, T.
        over_streams: Whether each stream continues where the previous update ended. Otherwise, examples are shuffled
            and S = B.
    """

    lookback: int
    bptt_length: int = 1
    over_streams: bool = False

    def num_streams(self, batch_size: int) -> int:
        """Returns the number of streams in a batch, S."""
        return batch_size // self.bptt_length

    def epoch_positions(self, seed: int, epoch: int, train: Span, batch_size: int) -> jax.Array:
        """Returns the int32 positions of an epoch's targets in the stream, in training order."""
        if not self.over_streams:
            return epoch_order(seed, epoch, train)
        size = stream_epoch_size(train, self.num_streams(batch_size), self.bptt_length)
        return jnp.asarray(self.positions_at(seed, epoch, train, batch_size, np.arange(size)), jnp.int32)

    def positions_at(self, seed: int, epoch: int, train: Span, batch_size: int, indices: np.ndarray) -> np.ndarray:
        """Returns the positions at the given indices of an epoch's training order without storing the whole order."""
        if not self.over_streams:
            return shuffled_positions(seed, epoch, train, indices)
        return stream_positions(seed, epoch, train, self.num_streams(batch_size), self.bptt_length, indices)


def make_batch(
    tokens_T: jax.Array | np.ndarray,
    positions_SxT: jax.Array,
    lookback: int,
    line_end: int | None = None,
) -> Batch:
    """Builds a batch from the positions of its targets. This function is pure and can be compiled with `jax.jit`.

    Args:
        tokens_T: The token ids of the corpus, int32.
        positions_SxT: The positions of the targets, int32, consecutive within a stream.
        lookback: The number of context tokens before the T input tokens. Positions before the start of the corpus are
            filled with the rare-word symbol.
        line_end: See `mark_lines`.
    """
    tokens_T = jnp.asarray(tokens_T)
    before_SxR = positions_SxT[:, :1] + jnp.arange(-lookback - 1, -1, dtype=positions_SxT.dtype)[None, :]
    indices_SxL = jnp.concatenate([before_SxR, positions_SxT - 1], axis=1)
    ids_SxL = jnp.where(indices_SxL >= 0, tokens_T[jnp.maximum(indices_SxL, 0)], RARE_ID)
    ids_SxL, starts_SxL = mark_lines(ids_SxL, line_end)
    return Batch(ids_SxL, tokens_T[positions_SxT], jnp.arange(len(ids_SxL), dtype=jnp.int32), starts_SxL)


def mark_lines(ids_SxL: jax.Array, line_end: int | None) -> tuple[jax.Array, jax.Array | None]:
    """Marks the beginnings of lines in streams of tokens.

    Args:
        ids_SxL: Token ids, int32.
        line_end: The id of the line-end token if each line is read separately. None if the text is one stream.

    Returns:
        The ids as network inputs, in which the rare-word symbol replaces the line-end token and begins the next line;
        and `Batch.starts_SxL`. If `line_end` is None, the ids are unchanged and the second value is None.
    """
    if line_end is None:
        return ids_SxL, None
    starts_SxL = ids_SxL == line_end
    return jnp.where(starts_SxL, RARE_ID, ids_SxL), starts_SxL


def examples(tokens_T: jax.Array | np.ndarray, positions_B: jax.Array, num_context: int) -> tuple[jax.Array, jax.Array]:
    """Returns the int32 context (B x N, in reading order) and target (B) of each of the given positions."""
    batch = make_batch(tokens_T, positions_B[:, None], num_context - 1)
    return batch.ids_SxL, batch.targets_B


def epoch_order(seed: int, epoch: int, train: Span) -> jax.Array:
    """Returns a random permutation of the training positions that depends only on the seed and the epoch.

    Update u of an epoch uses elements [u*B, (u+1)*B). An incomplete last batch is skipped. Each epoch has a different
    order.

    Args:
        seed: The run's seed.
        epoch: The epoch, from 0.
        train: The training positions.

    Returns:
        The positions in training order, int32.
    """
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 1), epoch)
    return jax.random.permutation(key, jnp.arange(train.start, train.stop, dtype=jnp.int32))


def shuffled_positions(seed: int, epoch: int, train: Span, indices: np.ndarray) -> np.ndarray:
    """Returns selected elements of a random permutation of the training positions. Does not compute the other elements.

    Args:
        seed: The run's seed.
        epoch: The epoch, from 0.
        train: The training positions.
        indices: The indices of the selected elements.

    Returns:
        The positions, int64. The permutation depends only on (seed, epoch). `epoch_order` returns a different
        permutation.
    """
    return train.start + permute(indices, len(train), (seed, 1, epoch))


def stream_positions(
    seed: int, epoch: int, train: Span, num_streams: int, bptt_length: int, indices: np.ndarray
) -> np.ndarray:
    """Returns selected elements of the training order for truncated back-propagation over parallel streams.

    Update u uses elements [u*B, (u+1)*B), where B = S * bptt_length. They are the next `bptt_length` positions of each
    stream, stream by stream. The streams read contiguous chunks of equal length. The first chunk starts at a random
    word that depends only on (seed, epoch). After the last word of the training text, reading continues with the first
    word.

    Args:
        seed: The run's seed.
        epoch: The epoch, from 0.
        train: The training positions.
        num_streams: S, the number of parallel streams.
        bptt_length: The number of tokens per stream and update.
        indices: The indices of the selected elements, less than `stream_epoch_size`.

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
    """Returns the number of training tokens in all complete updates of an epoch over parallel streams."""
    batch_size = num_streams * bptt_length
    return len(train) // batch_size * batch_size
