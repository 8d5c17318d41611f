"""Sorts integers, and selects the smallest sufficient integer dtype."""

import numpy as np

_BITS = 63  # bits per sorted number


def stable_order(values_N: np.ndarray) -> np.ndarray:
    """Returns a stable argsort of non-negative integers below 2**32."""
    small = np.uint16 if values_N.max(initial=0) < 2**16 else np.uint32  # NumPy sorts 16-bit integers by radix
    return np.argsort(values_N.astype(small), kind='stable')


def node_dtype(num_words: int) -> type[np.signedinteger]:
    """Returns int32 if it can hold the nodes, positions and counts of a stream of `num_words` words, else int64."""
    return np.int32 if num_words < np.iinfo(np.int32).max else np.int64


def sort_with_order(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorts integers stably.

    Args:
        keys: Non-negative integers, int64.

    Returns:
        The sorted integers, and the original index of each of them.
    """
    bits = len(keys).bit_length()
    if len(keys) and int(keys.max()) >> (_BITS - bits):
        order = np.argsort(keys, kind='stable')
        return keys[order], order
    # NumPy's sort is several times faster than its argsort, so the index is packed into the low bits of each number.
    packed = keys << bits
    packed |= np.arange(len(keys))
    packed.sort()
    return packed >> bits, packed & ((1 << bits) - 1)
