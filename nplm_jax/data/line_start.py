"""Defines the context of a line that is read independently of the preceding lines."""

import dataclasses
from typing import Self

import numpy as np

from nplm_jax.data.stream import BOUNDARY_TOKENS, PARAGRAPH_BOUNDARY
from nplm_jax.data.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class LineStart:
    """The unscored context before a text: `<p>`, a newline, or nothing.

    All commands use the same context, whether they score, continue or explain a text.

    Attributes:
        prefix: The ids before a line.
        marks: The ids of the boundary tokens. No prefix is added to a line that begins with a boundary token.
        end: The ids that `--end` scores at the end of a line: the prefix, or nothing if the prefix is <text>.
        has_returns: Whether the training text has carriage returns, and they are tokens.
    """

    prefix: tuple[int, ...] = ()
    marks: tuple[int, ...] = ()
    end: tuple[int, ...] = ()
    has_returns: bool = False

    @classmethod
    def of(cls, vocabulary: Vocabulary) -> Self:
        """Returns the line start for models with this vocabulary.

        If the corpus contains `<p>`, the prefix is `<p>`. If newlines are tokens, the prefix is the most frequent
        line-end token, preferably one that ends in a newline. If no line-end token occurs, the prefix is `<text>`.
        """
        tokenizer, ids = vocabulary.tokenizer, vocabulary.ids
        marks = tuple(ids[mark] for mark in BOUNDARY_TOKENS if tokenizer.boundary_tokens and mark in ids)
        if not tokenizer.is_lossless:
            prefix = tuple(i for i in marks if vocabulary.words[i] == PARAGRAPH_BOUNDARY)
            return cls(prefix, marks, prefix)
        texts = (tokenizer.decode([word]) for word in vocabulary.words)
        ends = {i: text for i, text in enumerate(texts) if text and not text.strip('\r\n')}
        used = [i for i in ends if vocabulary.counts[i]]
        end = (max(used, key=lambda i: (ends[i].endswith('\n'), vocabulary.counts[i])),) if used else ()
        return cls(end or marks, (*marks, *ends), end, any('\r' in ends[i] for i in used))

    def before(self, ids_T: np.ndarray, continues: bool = False) -> np.ndarray:
        """Returns the int32 ids to put before a line, or none if words follow a boundary token that begins the line.

        Args:
            ids_T: The ids of the line, or of its beginning.
            continues: Whether more words follow these ids, as after a prompt.
        """
        begins = len(ids_T) > 0 and len(ids_T) + continues > 1 and ids_T[0] in self.marks
        return np.array([] if begins else self.prefix, np.int32)
