"""Text line by line, as KenLM's lmplz and query read it: each line alone, after `<s>`, with `</s>` at its end.

The paragraph mark `<p>` is both: it ends a line, which is predicted, and the next one begins after it. No n-gram goes
across it, so that a model of this kind finds nothing before it in its table, and reads a stream as it reads lines.
"""

import dataclasses
from typing import Any

import numpy as np

from nplm_jax.data.corpora import Span
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.tokenizers.tokenizer import PARAGRAPH_BOUNDARY, TEXT_BOUNDARY
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.models.ngram import counts as stream_counts
from nplm_jax.models.ngram.counts import LineMarks, NgramCounts, NgramTable
from nplm_jax.models.ngram.scratch import Scratch, blocks
from nplm_jax.utils.mapped_arrays import release


def marks_of(vocabulary: Vocabulary) -> LineMarks:
    """Returns the ids of the marks in a vocabulary that has `<p>`."""
    return LineMarks(vocabulary.ids[PARAGRAPH_BOUNDARY], vocabulary.ids.get(TEXT_BOUNDARY))


def by_lines(data: Dataset, scratch: Scratch | None = None) -> Dataset:
    """Returns a corpus in which `<p>` stands after each paragraph, once before the first one, and `<text>` nowhere.

    The words of each split stay the same. A split has as many `<p>` as it has ends of lines, and the word before it is
    the `<p>` of the line before.

    Args:
        data: The corpus, whose vocabulary has `<p>`.
        scratch: Where a large stream is kept; None is the system's temporary folder.
    """
    (line, text), scratch = marks_of(data.vocabulary), scratch or Scratch()
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
        more = len(splits[name]) - len(data.splits[name])  # marks, of one character each
        sizes[name] = size._replace(
            tokens=size.tokens + more, characters=size.characters + more, utf8_bytes=size.utf8_bytes + more
        )
    return dataclasses.replace(data, **splits, tokens_T=tokens_T, sizes=sizes, by_lines=True)


def count(
    tokens_T: np.ndarray,
    span: Span,
    n: int,
    vocabulary_size: int,
    scratch: Scratch | None = None,
    marks: LineMarks | None = None,
) -> NgramCounts:
    """Counts n-grams as `counts.count` does; with `marks` only those that do not go on across the end of a line.

    Args:
        tokens_T: Ids of the stream.
        span: The words to count.
        n: The highest order.
        vocabulary_size: |V|.
        scratch: Where large arrays are kept; None is the system's temporary folder.
        marks: The marks of a text whose lines are counted alone; None for a stream.

    Raises:
        BadInput: See `counts.count`.
    """
    counts = stream_counts.count(tokens_T, span, n, vocabulary_size, scratch)
    return counts if marks is None else _without_crossing(counts, marks)


def _without_crossing(counts: NgramCounts, marks: LineMarks) -> NgramCounts:
    """Leaves out the n-grams that have the mark in their middle, and those that are only contexts before the span."""
    scratch, table, size = counts.scratch, counts.table, counts.table.vocabulary_size
    kept_arrays: list[list[np.ndarray]] = [[table.keys[0]], [counts.counts[0]], [counts.suffix_nodes[0]]]
    new_nodes, goes_on = np.arange(size), np.ones(size, bool)  # of the order below
    for k in range(2, table.n + 1):
        arrays = table.keys[k - 1], counts.counts[k - 1], counts.suffix_nodes[k - 1]
        writers = [scratch.writer(array.dtype.type) for array in arrays]
        is_kept, is_end = np.zeros((2, table.size(k)), bool)
        for block in table.blocks(k, scratch.block):
            keys, occurrences, suffix_nodes = (array[block.nodes] for array in arrays)
            contexts, words = block.prefixes + block.contexts.start, keys % size
            kept = goes_on[contexts] & (occurrences > 0)
            is_kept[block.nodes], is_end[block.nodes] = kept, words == marks.line
            new_keys = new_nodes[contexts] * size + words
            for writer, array in zip(writers, (new_keys, occurrences, new_nodes[suffix_nodes])):
                writer.append(array[kept])
        release(*arrays)
        for series, writer in zip(kept_arrays, writers):
            series.append(writer.finish())
        new_nodes, goes_on = np.cumsum(is_kept) - 1, is_kept & ~is_end
    all_keys, all_counts, all_suffix_nodes = map(tuple, kept_arrays)
    return NgramCounts(NgramTable(size, all_keys), all_counts, all_suffix_nodes, scratch, marks)
