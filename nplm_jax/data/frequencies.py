"""Computes smoothed log frequencies of words."""

from collections.abc import Sequence

import numpy as np

from nplm_jax.data import mapped_arrays


def unigram_log_probabilities(words_T: np.ndarray, vocabulary_size: int) -> np.ndarray:
    """Returns the float32 log relative frequency of each word in the vocabulary, after adding 1/2 to each count."""
    return log_frequencies(mapped_arrays.bincount(words_T, vocabulary_size)).astype(np.float32)


def log_frequencies(counts_V: np.ndarray | Sequence[int]) -> np.ndarray:
    """Returns the float64 log of each count's fraction of the total, after adding 1/2 to each count."""
    smoothed_V = np.asarray(counts_V) + 0.5
    return np.log(smoothed_V / smoothed_V.sum())
