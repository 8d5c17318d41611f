"""Provides training words, either from the corpus on the device or from a memory-mapped file.

The file is read chunk by chunk. In both cases, the order of the words depends only on the seed, the epoch and the
update.

Dims: T words of the corpus, L words read together, N context words, P target words.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.config.sections import TrainSettings
from nplm_jax.data import mapped_arrays
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.stream import RARE_ID
from nplm_jax.distributed.sharding import MeshSharding, read_rows
from nplm_jax.models.network import Network
from nplm_jax.utils.errors import require


class Words(NamedTuple):
    """The words that several consecutive updates within an epoch read. Every device holds a copy.

    Attributes:
        tokens_L: Word ids in reading order, int32.
        positions: Positions of target words in `tokens_L`, int32, in the order of the updates.
        first: The index in `positions` of the first target of these updates.
    """

    tokens_L: jax.Array
    positions: jax.Array
    first: int


# (epoch, first, size) -> the `size` target words of the epoch starting at index `first`.
WordSource: TypeAlias = Callable[[int, int, int], Words]


def input_mode(data: Dataset) -> str:
    """Returns the value that replaces `auto` in `train.input`: `mapped` for a memory-mapped corpus, else `device`."""
    return 'mapped' if isinstance(data.tokens_T, np.memmap) else 'device'


def make_word_source(
    settings: TrainSettings, seed: int, data: Dataset, network: Network, sharding: MeshSharding
) -> WordSource:
    """Creates the source of training words that `train.input` selects. For `auto`, see `input_mode`.

    Raises:
        BadInput: `train.input` is `device`, but the corpus is too long for 32-bit positions.
    """
    kind, batch_size = settings.input, settings.batch_size
    allowed = 'must be auto or mapped for a corpus of 2**31 words or more'
    require(kind != 'device' or len(data.tokens_T) < 2**31, 'train.input', kind, allowed)
    if (input_mode(data) if kind == 'auto' else kind) == 'mapped':
        return functools.partial(_read_mapped, batch_size, seed, data, network, sharding)
    tokens_T = sharding.replicate(data.device_tokens_T)

    @functools.lru_cache(maxsize=1)
    def positions(epoch: int) -> jax.Array:
        return sharding.replicate(network.layout.epoch_positions(seed, epoch, data.train, batch_size))

    return lambda epoch, first, size: Words(tokens_T, positions(epoch), first)


def _read_mapped(
    batch_size: int,
    seed: int,
    data: Dataset,
    network: Network,
    sharding: MeshSharding,
    epoch: int,
    first: int,
    size: int,
) -> Words:
    """Reads the context windows of `size` targets of an epoch from the mapped corpus, starting at index `first`.

    Each process reads only the windows for its own devices. Memory usage does not grow with the length of the corpus.
    """
    N, tokens_T, layout = network.layout.lookback + 1, data.tokens_T, network.layout

    def read_windows(start: int, stop: int) -> np.ndarray:
        positions_P = layout.positions_at(seed, epoch, data.train, batch_size, np.arange(first + start, first + stop))
        indices_PxL = positions_P[:, None] + np.arange(-N, 1)
        return np.where(indices_PxL >= 0, tokens_T[np.maximum(indices_PxL, 0)], RARE_ID)

    tokens_L = read_rows(read_windows, size, N + 1, sharding).reshape(-1)
    mapped_arrays.release(tokens_T)
    ends_P = np.arange(N, size * (N + 1), N + 1, dtype=np.int32)
    return Words(tokens_L, sharding.replicate(jnp.asarray(ends_P)), 0)
