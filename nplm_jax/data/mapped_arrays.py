"""Arrays that are mapped into memory from files: read in parts, so that memory holds one part at a time."""

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np

PART = 2**22  # numbers that are read at once


def parts(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yields the elements of an array, a copy of some million at a time."""
    for start in range(0, len(array), PART):
        yield np.array(array[start : start + PART])
        release(array)


def release(*arrays: Any) -> None:
    """Gives the memory of mapped arrays back to the system, which reads the pages again on use.

    Args:
        arrays: Arrays; those in memory stay as they are.
    """
    for array in arrays:
        base = array
        while isinstance(base, (np.ndarray, memoryview)):
            base = base.obj if isinstance(base, memoryview) else base.base
        if isinstance(base, mmap.mmap) and hasattr(mmap, 'MADV_DONTNEED'):
            base.madvise(mmap.MADV_DONTNEED)


def bincount(ids: np.ndarray, minlength: int) -> np.ndarray:
    """Returns how often each number occurs, int64, as `np.bincount` does, but in parts."""
    counts = np.zeros(minlength, np.int64)
    for part in parts(ids):
        counts += np.bincount(part, minlength=minlength)
    return counts
