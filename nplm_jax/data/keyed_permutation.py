"""Random permutations of 0, 1, ..., size - 1 that compute any element without storing the others.

References:
    Black and Rogaway, Ciphers with arbitrary finite domains, CT-RSA 2002: a Feistel network with cycle walking.
"""

from collections.abc import Sequence

import numpy as np

NUM_ROUNDS = 6


def permute(indices: np.ndarray, size: int, key: Sequence[int]) -> np.ndarray:
    """Returns the elements of a random permutation at the given indices.

    Args:
        indices: Indices below `size`, of any integer type.
        size: The number of elements.
        key: The seed of the permutation, a sequence of non-negative integers.

    Returns:
        The elements, int64.
    """
    half = np.uint64(max(((size - 1).bit_length() + 1) // 2, 1))  # bits of each half of a block
    mask = np.uint64((1 << int(half)) - 1)
    keys = np.random.SeedSequence(key).generate_state(NUM_ROUNDS, np.uint64)

    def encrypt(blocks: np.ndarray) -> np.ndarray:
        left, right = blocks >> half, blocks & mask
        for round_key in keys:
            left, right = right, left ^ (_mix(right + round_key) & mask)
        return (left << half) | right

    blocks = encrypt(indices.astype(np.uint64))
    # Cycle walking: values outside the range are encrypted again until they fall into the range. Few rounds are needed,
    # because there are at most 4 * size different values.
    while (outside := blocks >= size).any():
        blocks[outside] = encrypt(blocks[outside])
    return blocks.astype(np.int64)


def _mix(values: np.ndarray) -> np.ndarray:
    """Mixes the bits of each value with the last steps of SplitMix64."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
