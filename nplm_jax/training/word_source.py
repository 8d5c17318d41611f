"""Where updates read their words: from the corpus on the device, or from a mapped file by the host, chunk by chunk.

In both the order of the words is a pure function of (seed, epoch, update). Dims: T words of the corpus, L words that
are read together, N context words, P words to predict.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.config import Settings
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.vocabulary import RARE_ID
from nplm_jax.distributed.sharding import MeshSharding
from nplm_jax.models.body import Body
from nplm_jax.utils import mapped_arrays
from nplm_jax.utils.errors import require


class Words(NamedTuple):
    """The words of some consecutive updates of an epoch, on every device.

    Attributes:
        tokens_L: Ids of words in reading order, int32.
        positions: The positions in `tokens_L` of words to predict, int32, in the order of the updates.
        first: The index in `positions` of the first word of these updates.
    """

    tokens_L: jax.Array
    positions: jax.Array
    first: int


class DeviceWords:
    """The whole corpus, and the order of an epoch, on every device."""

    def __init__(self, tokens_T: jax.Array, order: Callable[[int], jax.Array]) -> None:
        """Takes the corpus on every device, and a function that returns the positions of an epoch there."""
        self._tokens_T = tokens_T
        self._order = functools.lru_cache(maxsize=1)(order)

    def read(self, epoch: int, first: int, size: int) -> Words:
        """Returns the words that an epoch predicts from index `first` on: everything there is."""
        return Words(self._tokens_T, self._order(epoch), first)


class MappedWords:
    """A corpus on the disk, of which only the windows of a chunk are read; memory does not grow with its length."""

    def __init__(
        self,
        tokens_T: np.ndarray,
        order: Callable[[int, np.ndarray], np.ndarray],
        num_context: int,
        sharding: MeshSharding,
    ) -> None:
        """Takes what reads and places the words.

        Args:
            tokens_T: The corpus, mapped.
            order: Returns the positions of an epoch's words at some indices.
            num_context: N.
            sharding: Places the words on every device.
        """
        self._tokens_T, self._order, self._num_context, self._sharding = tokens_T, order, num_context, sharding

    def read(self, epoch: int, first: int, size: int) -> Words:
        """Returns the `size` words that an epoch predicts from index `first` on.

        Windows follow each other in `tokens_L`; each process reads those of its devices.
        """
        N = self._num_context

        def read_windows(start: int, stop: int) -> np.ndarray:
            indices_PxL = self.corpus_positions(epoch, first + start, stop - start)[:, None] + np.arange(-N, 1)
            return np.where(indices_PxL >= 0, self._tokens_T[np.maximum(indices_PxL, 0)], RARE_ID)

        tokens_L = self._sharding.read_rows(read_windows, size, N + 1).reshape(-1)
        mapped_arrays.release(self._tokens_T)
        ends_P = np.arange(N, size * (N + 1), N + 1, dtype=np.int32)
        return Words(tokens_L, self._sharding.replicate(jnp.asarray(ends_P)), 0)

    def corpus_positions(self, epoch: int, first: int, size: int) -> np.ndarray:
        """Returns the positions of `size` words from index `first` on in the corpus."""
        return self._order(epoch, np.arange(first, first + size))


WordSource: TypeAlias = DeviceWords | MappedWords


def resolve_input(data: Dataset) -> str:
    """Returns what train.input=auto means for a corpus: a mapped one is read from its file."""
    return 'mapped' if isinstance(data.tokens_T, np.memmap) else 'device'


def make_word_source(settings: Settings, data: Dataset, body: Body, sharding: MeshSharding) -> WordSource:
    """Returns the source that `train.input` names; `auto` is what `resolve_input` returns.

    Raises:
        BadInput: The corpus is too long for positions of 32 bits, and is not to be read from its file.
    """
    kind, seed, batch_size = settings.train.input, settings.seed, settings.train.batch_size
    allowed = 'must be auto or mapped for a text of 2**31 words or more'
    require(kind != 'device' or len(data.tokens_T) < 2**31, 'train.input', kind, allowed)
    if (resolve_input(data) if kind == 'auto' else kind) == 'mapped':
        return MappedWords(
            data.tokens_T,
            lambda epoch, indices: body.positions_at(seed, epoch, data.train, batch_size, indices),
            body.training_context,
            sharding,
        )
    return DeviceWords(
        sharding.replicate(data.device_tokens_T),
        lambda epoch: sharding.replicate(body.epoch_positions(seed, epoch, data.train, batch_size)),
    )
