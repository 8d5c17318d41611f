"""Streams of words as indices into a list of types (distinct words).

Dims: L words of a stream.
"""

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from nplm_jax.data import mapped_arrays


class TypeNumbers(dict[str, int]):
    """The index of each type in order of first occurrence. Looking up a new type assigns the next index."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number

    def number(self, words: Iterable[str]) -> np.ndarray:
        """Returns the int32 index of each word."""
        return np.fromiter(map(self.__getitem__, words), np.int32)


class WordStream(NamedTuple):
    """A stream of words.

    Attributes:
        types: The distinct words in order of first occurrence.
        type_ids_L: The index in `types` of each word, int32.
    """

    types: Sequence[str]
    type_ids_L: np.ndarray

    @classmethod
    def from_words(cls, words: Iterable[str]) -> 'WordStream':
        """Builds a stream from words."""
        numbers = TypeNumbers()
        type_ids_L = numbers.number(words)
        return cls(list(numbers), type_ids_L)

    def words(self) -> list[str]:
        """Returns the stream as a list of words."""
        types = list(self.types)
        return [types[i] for i in self.type_ids_L.tolist()]

    def shorten(self, lengths: Sequence[int], kept: Sequence[int]) -> 'WordStream':
        """Returns a stream of the first words of each part, in memory. If no words are removed, returns `self`.

        Args:
            lengths: The number of words of each part.
            kept: The number of words to keep from each part.
        """
        if list(kept) == list(lengths):
            return self
        numbers, shortened = np.full(len(self.types), -1, np.int32), []
        used: list[int] = []  # the old index of each new type
        for start, size in zip([0, *itertools.accumulate(lengths)], kept):
            for chunk_L in mapped_arrays.chunks(self.type_ids_L[start : start + size]):
                new, first = np.unique(chunk_L[numbers[chunk_L] < 0], return_index=True)
                new = new[np.argsort(first)]  # in order of occurrence
                numbers[new] = np.arange(len(used), len(used) + len(new))
                used += new.tolist()
                shortened.append(numbers[chunk_L])
        return WordStream([self.types[i] for i in used], np.concatenate(shortened))

    def replace_types(self, parts: Sequence[Sequence[str]]) -> 'WordStream':
        """Returns a stream in which each word is replaced by zero or more words, depending on its type.

        Args:
            parts: The replacement of each type, in the order of `types`.
        """
        numbers = TypeNumbers()
        ids = numbers.number(itertools.chain.from_iterable(parts))
        lengths_K = np.array([len(part) for part in parts], int)
        if (lengths_K == 1).all():
            return WordStream(list(numbers), ids[self.type_ids_L])
        lengths_L = lengths_K[self.type_ids_L]
        starts_L = (np.cumsum(lengths_K) - lengths_K)[self.type_ids_L]
        places_L = np.repeat(starts_L - np.cumsum(lengths_L) + lengths_L, lengths_L)
        return WordStream(list(numbers), ids[places_L + np.arange(len(places_L))])
