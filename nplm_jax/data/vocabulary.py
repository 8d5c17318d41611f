"""Vocabularies, which map words to ids and ids to words. All rare words share one symbol (section 4 of the paper)."""

import collections
import dataclasses
import functools
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from nplm_jax.data.stream import RARE, RARE_ID
from nplm_jax.data.tokenizers import cutting, token_text
from nplm_jax.data.tokenizers.tokenizer import Tokenizer, difference
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.utils.errors import require


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """A list of |V| words. The rare-word symbol has id 0; the others are sorted by decreasing frequency.

    Attributes:
        words: The words in id order.
        counts: The number of occurrences of each word in the counted text. counts[0] is the total count of the words
            outside the vocabulary.
        tokenizer: The tokenizer that produces the words.
    """

    words: tuple[str, ...]
    counts: tuple[int, ...]
    tokenizer: Tokenizer = dataclasses.field(default=WordTokenizer(), compare=False)

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        shown = [repr(word[:20]) for word in self.words[:4]] + ['...'] * (len(self) > 4)
        return f'<Vocabulary of {len(self):,} words: {", ".join(shown)}; tokens={self.tokenizer.kind[:30]}>'

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        """The id of each word."""
        return {word: i for i, word in enumerate(self.words)}

    @functools.cached_property
    def shown(self) -> tuple[str, ...]:
        """Each word in display form, for lists and tables."""
        return tuple(self.show(self.words))

    @functools.cached_property
    def _shown_ids(self) -> dict[str, int]:
        return {shown: i for i, shown in reversed(list(enumerate(self.shown)))}

    def show(self, tokens: Iterable[str]) -> list[str]:
        """Returns tokens in display form, for lists and tables."""
        return [token_text.show(self.tokenizer, token) for token in tokens]

    def difference(self, other: 'Vocabulary', name: str) -> str:
        """Describes why models with these two vocabularies cannot be combined. Returns '' if they can.

        Args:
            other: The other vocabulary.
            name: The name of the other model, for the message.
        """
        if self.words != other.words:
            return f'its vocabulary ({len(self):,} words) differs from that of {name} ({len(other):,})'
        return difference(self.tokenizer, other.tokenizer, name)

    def find(self, shown: str) -> int | None:
        """Returns the id of a word given in display form, with or without a leading ␣, or None if it is unknown."""
        return self._shown_ids.get(shown, self._shown_ids.get(f'␣{shown}'))

    def encode(self, words: Iterable[str]) -> np.ndarray:
        """Returns the int32 id of each word. Words outside the vocabulary have id 0.

        Words are looked up verbatim. For example, `The` is outside the vocabulary of a lower-cased corpus
        (`corpus.lowercase`). Use `tokenize` to prepare a text in the same way as the corpus.

        Raises:
            BadInput: `words` is a single string, or contains anything but strings, such as bytes or ids.
        """
        listed, ids = list(words), self.ids
        are_words = not isinstance(words, str) and all(issubclass(kind, str) for kind in {*map(type, listed)})
        problem = 'must be a sequence of words, which are strings; split a string into words first'
        require(are_words, 'words', words, problem)
        return np.fromiter((ids.get(w, RARE_ID) for w in listed), np.int32, len(listed))

    def tokenize(self, text: str) -> list[str]:
        """Tokenizes a text like the corpus, but without boundary tokens, and adapts its tokens to the vocabulary."""
        return cutting.tokenize(self.tokenizer, [text], self.ids)[0]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Returns the word of each id.

        Raises:
            IndexError: An id is outside the vocabulary.
        """
        return [self.words[i if i >= 0 else len(self)] for i in ids]  # a negative index would count from the end


def numbered(size: int) -> Vocabulary:
    """Returns a vocabulary of `size` words, each with a count of one: RARE, `w1`, `w2` and so on."""
    return Vocabulary((RARE, *(f'w{i}' for i in range(1, size))), (1,) * size)


def build(words: Sequence[str], min_count: int = 1, max_vocabulary: int = 0) -> Vocabulary:
    """Builds the vocabulary of the most frequent words. Words with equal counts are ranked by first occurrence.

    With min_count=4 and max_vocabulary=16,383, Brown's default tokens give exactly the paper's |V|.

    Args:
        words: The words to count.
        min_count: Words with fewer occurrences are dropped.
        max_vocabulary: The maximum |V|, including the rare-word symbol, or 0 for no limit.

    Examples:
        >>> vocabulary = build(['the', 'cat', 'and', 'the', 'dog'], min_count=2)
        >>> vocabulary.words, vocabulary.counts
        (('<rare>', 'the'), (3, 2))
        >>> vocabulary.encode(['the', 'cat']).tolist()
        [1, 0]
    """
    return from_counts(collections.Counter(words), min_count, max_vocabulary)


def from_counts(
    frequencies: Mapping[str, int], min_count: int = 1, max_vocabulary: int = 0, marks: Collection[str] = ()
) -> Vocabulary:
    """Builds the vocabulary of the most frequent words from their counts; see `build`.

    Args:
        frequencies: The number of occurrences of each word, in order of first occurrence.
        min_count: Words with fewer occurrences are dropped.
        max_vocabulary: The maximum |V|, or 0 for no limit.
        marks: The boundary tokens of the text. They are always kept. Like words, they are ranked by their counts.
    """
    frequencies = {**frequencies, **{mark: frequencies.get(mark, 0) for mark in marks}}
    kept = [(w, c) for w, c in frequencies.items() if (c >= min_count or w in marks) and w != RARE]
    kept.sort(key=lambda item: -item[1])  # keeps the order of words with equal counts
    if max_vocabulary:
        left_out = {w for w, _ in [item for item in kept if item[0] not in marks][max_vocabulary - 1 - len(marks) :]}
        kept = [item for item in kept if item[0] not in left_out]
    num_rare = sum(frequencies.values()) - sum(c for _, c in kept)
    return Vocabulary((RARE, *(w for w, _ in kept)), (num_rare, *(c for _, c in kept)))
