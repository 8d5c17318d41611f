"""Smaller numbers of a back-off model: each log p and log b becomes one of 256 or 65,536 values of its order."""

import numpy as np

from nplm_jax.models.ngram.backoff import BackoffModel
from nplm_jax.models.ngram.scratch import Scratch
from nplm_jax.models.ngram.sorting import blocks
from nplm_jax.utils.mapped_arrays import release

BITS = (8, 16)
_EXACT = (0.0, -np.inf)  # values that stay as they are: a context without a following word, a word that cannot follow
_SAMPLE = 2**22  # values from which the bins are computed


class QuantizedArray:
    """Numbers as codes into a short list of values; an index reads them as float64.

    Attributes:
        codes: The place of each number among the values, uint8 or uint16.
        values: The values, float64.
    """

    def __init__(self, codes: np.ndarray, values: np.ndarray) -> None:
        self.codes = codes
        self.values = values

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: np.ndarray | slice) -> np.ndarray:
        return self.values[self.codes[index]]

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.values[self.codes], dtype)

    @property
    def nbytes(self) -> int:
        """The size in memory, bytes."""
        return self.codes.nbytes + self.values.nbytes


def quantize(model: BackoffModel, bits: int, scratch: Scratch | None = None) -> BackoffModel:
    """Returns a model whose numbers above order 1 take 8 or 16 bits; its probabilities sum to one only nearly.

    Args:
        model: The model.
        bits: 8 or 16.
        scratch: Where large arrays are kept; None is the system's temporary folder.
    """
    scratch = scratch or Scratch()
    log_p = [_quantize(array, bits, scratch) for array in model.log_p[1:]]
    log_b = [_quantize(array, bits, scratch) for array in model.log_b[1:]]
    return BackoffModel(model.table, [model.log_p[0], *log_p], [*model.log_b[:1], *log_b])


def _quantize(array: np.ndarray, bits: int, scratch: Scratch) -> QuantizedArray:
    """Returns an array with the values of its bins: bins of equally many numbers, each with their mean.

    Up to 2**22 numbers of fewer different values than there are codes stay exact.

    References:
        Federico & Bertoldi, 2006: How many bits are needed to store probabilities for phrase-based translation?
    """
    sample = np.sort(array[:: max(-(-len(array) // _SAMPLE), 1)])
    sample = sample[~np.isin(sample, _EXACT)]
    if not len(sample):  # the rest is rare: all of it
        sample = np.sort(array[~np.isin(array, _EXACT)])
    centers, num_bins = np.unique(sample), 2**bits - len(_EXACT)
    if len(centers) > num_bins:
        first = np.arange(num_bins) * len(sample) // num_bins
        centers = np.unique(np.add.reduceat(sample, first) / np.diff(first, append=len(sample)))
    borders = (centers[1:] + centers[:-1]) / 2
    writer = scratch.writer(np.uint8 if bits == 8 else np.uint16)
    for block in blocks(len(array), scratch.block):
        piece = array[block]
        codes = np.searchsorted(borders, piece) + len(_EXACT)
        for code, value in enumerate(_EXACT):
            codes[piece == value] = code
        writer.append(codes)
    release(array)
    return QuantizedArray(writer.finish(), np.concatenate([_EXACT, centers]))
