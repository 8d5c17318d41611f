"""Integer sorting with argsort, and selection of the smallest integer type."""

import numpy as np

_BITS = 63  # of a sorted number


def stable_order(values_N: np.ndarray) -> np.ndarray:
    """Returns the order that sorts non-negative integers below 2**32, equal ones as they are."""
    small = np.uint16 if values_N.max(initial=0) < 2**16 else np.uint32  # 16 bits are sorted by radix
    return np.argsort(values_N.astype(small), kind='stable')


def node_dtype(num_words: int) -> type[np.signedinteger]:
    """Returns the smallest of int32 and int64 that holds a node, a position and a count of so many words."""
    return np.int32 if num_words < np.iinfo(np.int32).max else np.int64


def sort_with_order(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorts numbers, equal ones in the order they have.

    Args:
        keys: Non-negative int64.

    Returns:
        The sorted numbers, and the index that each had.
    """
    bits = len(keys).bit_length()
    if len(keys) and int(keys.max()) >> (_BITS - bits):
        order = np.argsort(keys, kind='stable')
        return keys[order], order
    # Sorting numbers is several times faster than finding the order of numbers: the index is a part of the number.
    packed = keys << bits
    packed |= np.arange(len(keys))
    packed.sort()
    return packed >> bits, packed & ((1 << bits) - 1)
