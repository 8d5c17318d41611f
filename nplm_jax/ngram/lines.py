"""Reads a text line by line, as KenLM's lmplz and query do: n-grams stay within a line, and `</s>` is predicted.

The paragraph mark `<p>` serves as both `</s>` and `<s>`. As `</s>`, the mark ends a line and is predicted. As `<s>`,
the mark precedes the next line. No n-gram in the table crosses `<p>`, so a model can read a stream of lines as if they
were separate.
"""

import dataclasses
from typing import Any

import numpy as np

from nplm_jax.data.dataset import Dataset
from nplm_jax.data.line_start import LineStart
from nplm_jax.data.stream import PARAGRAPH_BOUNDARY, TEXT_BOUNDARY, Span
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.ngram.counts import LineMarks
from nplm_jax.ngram.scratch import SCRATCH, Scratch, blocks


def marks_of(data: Dataset) -> LineMarks | None:
    """Returns the tokens that separate the lines of a corpus, or None if no token does."""
    if data.by_lines:
        return _marks_of_lines(data.vocabulary)
    prefix = LineStart.of(data.vocabulary).prefix
    return LineMarks(prefix[-1], are_crossed=True) if prefix else None


def _marks_of_lines(vocabulary: Vocabulary) -> LineMarks:
    """Returns the line marks for a vocabulary with `<p>`, for texts whose lines are read separately."""
    return LineMarks(vocabulary.ids[PARAGRAPH_BOUNDARY], vocabulary.ids.get(TEXT_BOUNDARY))


def by_lines(data: Dataset, scratch: Scratch = SCRATCH) -> Dataset:
    """Converts a corpus for line-by-line reading: `<p>` precedes the first paragraph and follows every paragraph.

    `<text>` is removed. The words of each split do not change. Each line of a split ends with `<p>`, and the token
    before a split is the `<p>` that ends the previous line.

    Args:
        data: The corpus, whose vocabulary contains `<p>`.
        scratch: The allocator of large arrays.
    """
    line, text, _ = _marks_of_lines(data.vocabulary)
    writer, bounds = scratch.writer(np.int32), {0: 0}
    bounds |= dict.fromkeys((x for span in data.splits.values() for x in (span.start, span.stop)), 0)
    for block in blocks(len(data.tokens_T), scratch.block):
        part = np.asarray(data.tokens_T[block])
        is_word = np.ones(len(part), bool) if text is None else part != text
        writer.append(part[is_word])
        for x in bounds:
            bounds[x] += int(is_word[: max(x - block.start, 0)].sum())
    writer.append(np.array([line]))
    tokens_T = writer.finish()
    moved = {x: y + int(tokens_T[y] == line) for x, y in bounds.items()}
    splits: dict[str, Any] = {name: Span(moved[span.start], moved[span.stop]) for name, span in data.splits.items()}
    sizes = {}
    for name, size in data.sizes.items():
        more = len(splits[name]) - len(data.splits[name])  # the added marks, of one character each
        sizes[name] = size._replace(
            tokens=size.tokens + more, characters=size.characters + more, utf8_bytes=size.utf8_bytes + more
        )
    return dataclasses.replace(data, **splits, tokens_T=tokens_T, sizes=sizes, by_lines=True)
