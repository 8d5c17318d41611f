"""Defines spans of token streams, and the special tokens in every vocabulary."""

import dataclasses

import numpy as np

TEXT_BOUNDARY = '<text>'  # before each text of a corpus
PARAGRAPH_BOUNDARY = '<p>'  # before each paragraph
BOUNDARY_TOKENS = (TEXT_BOUNDARY, PARAGRAPH_BOUNDARY)
RARE = '<rare>'  # all tokens outside the vocabulary
SPECIAL_TOKENS = (RARE, *BOUNDARY_TOKENS)
RARE_ID = 0  # the id of RARE in every vocabulary
# When a text contains special tokens, those in SKIPPED are dropped like whitespace and those in UNKNOWN become RARE.
SKIPPED = (*BOUNDARY_TOKENS, '<s>', '</s>')
UNKNOWN = (RARE, '<unk>', '<UNK>')


@dataclasses.dataclass(frozen=True)
class Span:
    """The words [start, stop) in a stream."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def with_history(tokens_T: np.ndarray, span: Span, num_context: int) -> np.ndarray:
    """Returns the int64 ids of the `num_context` words before a span and of the words in the span.

    RARE_ID fills positions before the start of the stream.
    """
    words_L = np.asarray(tokens_T[max(span.start - num_context, 0) : span.stop], np.int64)
    return np.pad(words_L, (num_context + len(span) - len(words_L), 0), constant_values=RARE_ID)
