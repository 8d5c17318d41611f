"""Defines `Dataset`, the form in which training and evaluation read a corpus: token ids and the spans of the splits.

Dims: T tokens of the stream.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.data.stream import RARE_ID, Span

if TYPE_CHECKING:
    from nplm_jax.data.vocabulary import Vocabulary


class TextSize(NamedTuple):
    """The size of a text in tokens (including boundary tokens), words, characters and UTF-8 bytes."""

    tokens: int
    words: int
    characters: int
    utf8_bytes: int


@dataclasses.dataclass(frozen=True)
class Splits:
    """The training, validation and test spans of a stream.

    Attributes:
        train: The span of the training words.
        valid: The span of the validation words.
        test: The span of the test words.
    """

    train: Span
    valid: Span
    test: Span

    @property
    def splits(self) -> dict[str, Span]:
        """The three spans by name."""
        return {'train': self.train, 'valid': self.valid, 'test': self.test}

    def __repr__(self) -> str:
        sizes = (f'{len(span):,} {name}' for name, span in self.splits.items())
        return f'<{type(self).__name__} of {", ".join(sizes)} words>'


@dataclasses.dataclass(frozen=True, repr=False)
class Dataset(Splits):
    """A corpus as token ids, with its splits.

    Attributes:
        tokens_T: The whole stream, int32; memory-mapped if the stream is long.
        vocabulary: The vocabulary, which maps the ids to words.
        sizes: The size of each split by name. This dictionary is empty if the tokens do not reproduce the text.
        test_sha256: The SHA-256 of the test text without whitespace (`encoding.digest`), or '' if it is unknown.
        has_lines: Whether each line of the text is a paragraph.
        by_lines: Whether the stream was converted by `ngram.lines.by_lines`: `<p>` then follows each paragraph instead
            of preceding it, and `<text>` is omitted.
    """

    tokens_T: np.ndarray
    vocabulary: 'Vocabulary'
    sizes: Mapping[str, TextSize] = dataclasses.field(default_factory=dict)
    test_sha256: str = ''
    has_lines: bool = False
    by_lines: bool = False

    @property
    def train_words(self) -> np.ndarray:
        """The ids of the training words in reading order."""
        return self.tokens_T[self.train.start : self.train.stop]

    def oov(self) -> dict[str, float]:
        """Returns the fractions of validation and test words that are outside the vocabulary, by split name."""
        spans = {'valid': self.valid, 'test': self.test}
        return {name: float((self.tokens_T[s.start : s.stop] == RARE_ID).mean()) for name, s in spans.items()}

    @functools.cached_property
    def device_tokens_T(self) -> jax.Array:
        """The whole stream, copied to device memory on first access. All runs that use this dataset share the copy."""
        return jnp.asarray(self.tokens_T)
