"""Positions of a stream of token ids, and the special tokens of every vocabulary."""

import dataclasses

import numpy as np

TEXT_BOUNDARY = '<text>'  # before each text of a corpus
PARAGRAPH_BOUNDARY = '<p>'  # before each paragraph
BOUNDARY_TOKENS = (TEXT_BOUNDARY, PARAGRAPH_BOUNDARY)
RARE = '<rare>'  # all tokens that are not in the vocabulary
SPECIAL_TOKENS = (RARE, *BOUNDARY_TOKENS)
RARE_ID = 0  # the id of RARE in every vocabulary
# Special tokens that are written in a text, whole: the first are skipped like white space, the others are unknown.
SKIPPED = (*BOUNDARY_TOKENS, '<s>', '</s>')
UNKNOWN = (RARE, '<unk>', '<UNK>')


@dataclasses.dataclass(frozen=True)
class Span:
    """Words [start, stop) of a stream."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def with_history(tokens_T: np.ndarray, span: Span, num_context: int) -> np.ndarray:
    """Returns the words of `span` and the `num_context` before it, the rare-word symbol before the stream. int64."""
    words_L = np.asarray(tokens_T[max(span.start - num_context, 0) : span.stop], np.int64)
    return np.pad(words_L, (num_context + len(span) - len(words_L), 0), constant_values=RARE_ID)
