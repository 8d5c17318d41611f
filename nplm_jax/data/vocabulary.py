"""Words to ids and back; rare words share one symbol (the paper, section 4)."""

from __future__ import annotations

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np

from nplm_jax.config import CorpusSettings
from nplm_jax.data.corpora import Corpus
from nplm_jax.data.tokenization import RARE
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import read_numbers, write_atomically

RARE_ID = 0  # of RARE in every vocabulary: all words that are not in it


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """|V| words, most frequent first after the rare-word symbol, which has id 0.

    counts: how often each occurs in the words the vocabulary was made from; counts[0] is what was merged.
    """

    words: tuple[str, ...]
    counts: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.words)

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    def encode(self, words: Iterable[str]) -> np.ndarray:
        """int32 ids, one a word; a word outside the vocabulary gets id 0."""
        ids = self.ids
        return np.fromiter((ids.get(w, RARE_ID) for w in words), np.int32)

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words of `ids`. Raises: IndexError for an id outside the vocabulary."""
        return [self.words[i] for i in ids]


def build(words: Sequence[str], min_count: int = 1, max_vocabulary: int = 0) -> Vocabulary:
    """Keeps the words that occur at least `min_count` times, at most `max_vocabulary` - 1 of them (0: no limit).

    Words of equal count are kept in order of first occurrence. With min_count=4 and max_vocabulary=16,383
    Brown's default tokens give the paper's |V| exactly.
    """
    frequencies = collections.Counter(words)
    frequencies.pop(RARE, None)
    kept = [(w, c) for w, c in frequencies.most_common() if c >= min_count]
    if max_vocabulary:
        kept = kept[: max_vocabulary - 1]
    merged = len(words) - sum(c for _, c in kept)
    return Vocabulary((RARE, *(w for w, _ in kept)), (merged, *(c for _, c in kept)))


def for_corpus(corpus: Corpus, settings: CorpusSettings) -> Vocabulary:
    """The vocabulary that `corpus.count_over`, `min_count` and `max_vocabulary` ask for.

    Raises: BadInput when fewer than two words are left.
    """
    words = corpus.words if settings.count_over == 'all' else corpus.words[corpus.train.start : corpus.train.stop]
    vocabulary = build(words, settings.min_count, settings.max_vocabulary)
    if len(vocabulary) < 3:
        raise BadInput(
            f'corpus.min_count={settings.min_count}: leaves {len(vocabulary) - 1} words in the vocabulary; '
            '2 or more are needed'
        )
    return vocabulary


def save(vocabulary: Vocabulary, path: pathlib.Path) -> None:
    """Writes UTF-8 lines `word<TAB>count` in the order of the ids."""
    write_atomically(path, ''.join(f'{w}\t{c}\n' for w, c in zip(vocabulary.words, vocabulary.counts)))


def load(path: pathlib.Path) -> Vocabulary:
    """Reads what `save` wrote. Raises: BadInput naming file and line where it is not of that form."""
    words, counts = [], []
    for _, word, count in read_numbers(path, 'count'):
        words.append(word)
        counts.append(count)
    if words[:1] != [RARE]:
        raise BadInput(f'{path}:1: the first word must be {RARE}')
    return Vocabulary(tuple(words), tuple(counts))
