"""Reads memory-mapped arrays in chunks, with one chunk in memory at a time."""

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np

CHUNK_SIZE = 2**22  # elements per chunk


def chunks(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yields copies of consecutive chunks of an array, CHUNK_SIZE elements each."""
    for start in range(0, len(array), CHUNK_SIZE):
        yield np.array(array[start : start + CHUNK_SIZE])
        release(array)


def release(*arrays: Any) -> None:
    """Releases the resident memory of memory-mapped arrays. Later accesses read the pages from disk again.

    Args:
        arrays: The arrays. Arrays that are not memory-mapped are unaffected.
    """
    for array in arrays:
        base = array
        while isinstance(base, (np.ndarray, memoryview)):
            base = base.obj if isinstance(base, memoryview) else base.base
        if isinstance(base, mmap.mmap) and hasattr(mmap, 'MADV_DONTNEED'):
            base.madvise(mmap.MADV_DONTNEED)


def bincount(ids: np.ndarray, minlength: int) -> np.ndarray:
    """Counts the occurrences of each id, with the same result as `np.bincount` but one chunk at a time."""
    counts = np.zeros(minlength, np.int64)
    for chunk in chunks(ids):
        counts += np.bincount(chunk, minlength=minlength)
    return counts
