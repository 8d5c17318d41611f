"""Splits token streams and raw texts into training, validation and test sets."""

import functools
import itertools
import math
from collections.abc import Container, Sequence

import numpy as np

from nplm_jax.config.sections import CorpusSettings
from nplm_jax.data import text_files
from nplm_jax.data.stream import BOUNDARY_TOKENS, Span
from nplm_jax.data.text_files import TextSource
from nplm_jax.data.word_stream import WordStream
from nplm_jax.utils.errors import BadInput, require


def check_default_sizes(settings: CorpusSettings) -> None:
    """Raises BadInput if a split size is set for a corpus that has its own splits."""
    for key in ('train', 'valid', 'test'):
        value, default = getattr(settings, key), getattr(CorpusSettings, key)
        allowed = f'must be {default:g} (the default), because the corpus has its own splits'
        require(value == default, f'corpus.{key}', value, allowed)


def split_stream(
    stream: WordStream, lengths: Sequence[int], settings: CorpusSettings, has_lines: bool, keeps_all: bool
) -> tuple[WordStream, Sequence[Span]]:
    """Splits a stream into the training, validation and test spans.

    Args:
        stream: The words of all parts.
        lengths: The number of words in each part.
        settings: The `corpus.*` settings.
        has_lines: Whether each line is a paragraph; if so, each span ends at the end of a line.
        keeps_all: Whether to keep all words rather than only `corpus.words` words.

    Returns:
        The stream of kept words, and its three spans.

    Raises:
        BadInput: The text is too short, or a span would contain no words other than boundary tokens.
    """
    marks = {i for i, word in enumerate(stream.types) if word in BOUNDARY_TOKENS}
    spans = _split(lengths, lengths, settings)
    if not keeps_all:
        kept = _kept(settings, lengths, list(map(len, spans)))
        if has_lines:
            starts = [0, *itertools.accumulate(lengths)]
            ends = [_next_line(stream, marks, start + size) for start, size in zip(starts, kept)]
            kept = [end - start for start, end in zip(starts, ends)]
        stream, spans = stream.shorten(lengths, kept), _split(lengths, kept, settings)
    if has_lines:
        ends = [_next_line(stream, marks, span.stop) for span in spans]
        spans = list(map(Span, (0, *ends), ends))
    num_words = len(stream.type_ids_L)
    for name, span in zip(('train', 'valid', 'test'), spans):
        if all(i in marks for i in stream.type_ids_L[span.start : span.stop]):  # stops at the first word
            raise BadInput(_sizes(settings), f'leave no words in the {name} split; the corpus has {num_words:,} words')
    return stream, spans


def _split(lengths: Sequence[int], kept: Sequence[int], settings: CorpusSettings) -> Sequence[Span]:
    """Returns the training, validation and test spans: the three parts, or consecutive spans of a single part.

    Args:
        lengths: The number of words in each part.
        kept: The number of words kept of each part. The spans of a single part keep their proportions.
        settings: The `corpus.*` settings.
    """
    if settings.name == 'sentences':
        return [Span(0, kept[0])] * 3
    if len(lengths) == 1:
        ends = [_scale(end, kept[0], lengths[0]) for end in _bounds(settings, lengths[0])]
    else:
        ends = [0, *itertools.accumulate(kept)]
    return list(map(Span, ends, ends[1:]))


def _kept(settings: CorpusSettings, lengths: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Returns the number of words to keep from each part, as determined by `corpus.words`.

    Args:
        settings: The `corpus.*` settings.
        lengths: The number of words in each part.
        sizes: The number of words of the full training, validation and test sets.

    Raises:
        BadInput: The text is shorter than `corpus.words`, or a set would be empty.
    """
    total, smallest = sum(lengths), min(sizes)
    if not (settings.words and smallest):
        return list(lengths)
    least = -(-total // smallest)
    allowed = f'must be 0 (all words) or between {least:,} and {total:,}, the number of words in the corpus'
    require(least <= settings.words <= total, 'corpus.words', settings.words, allowed)
    return [_scale(length, settings.words, total) for length in lengths]


def _scale(words: int, new: int, old: int) -> int:
    """Returns words * new / old, rounded half up. Numbers that differ by at least old / new stay distinct."""
    return (2 * words * new + old) // (2 * old)


def _bounds(settings: CorpusSettings, num_words: int) -> list[int]:
    """Returns the start of the training set, and the ends of the training, validation and test sets.

    `settings.train`, `.valid` and `.test` are fractions of the stream if below 1, otherwise numbers of words. A test
    size of 0 selects the rest of the stream.

    Raises:
        BadInput: The three sets are longer than the stream.
    """
    sizes = [x * num_words if x < 1 else int(x) for x in (settings.train, settings.valid, settings.test)]
    ends = [0, *itertools.accumulate(round(size) for size in sizes)]
    total = math.ceil(sum(sizes) - 0.01)  # because of rounding, fractions may sum to slightly more than 1
    if not settings.test:
        ends[-1] = max(ends[-1], num_words)
    elif total > num_words:
        raise BadInput(_sizes(settings), f'add up to {total:,} words, but the corpus has only {num_words:,}')
    return [min(end, num_words) for end in ends]


def _sizes(settings: CorpusSettings) -> str:
    keys = ['train', 'valid', *(key for key in ('test', 'words') if getattr(settings, key))]
    return ', '.join(f'corpus.{key}={getattr(settings, key):g}' for key in keys)


def _next_line(stream: WordStream, marks: Container[int], position: int) -> int:
    """Returns the start of the first line at or after a position, or the end of the stream if there is none.

    Args:
        stream: The words of all parts.
        marks: The ids of the types that are boundary tokens.
        position: A position in the stream.
    """
    size = len(stream.type_ids_L)
    return next((i for i in range(position, size) if stream.type_ids_L[i] in marks), size)


def split_text(source: TextSource, settings: CorpusSettings) -> list[TextSource]:
    """Splits a raw text into consecutive training, validation and test texts before a tokenizer learns from it.

    Words are separated by ASCII whitespace.
    """
    num_words = _count_words(source)
    bounds = _bounds(settings, num_words)
    if settings.words:
        kept = _kept(settings, [num_words], np.diff(bounds).tolist())[0]
        bounds = [_scale(end, kept, num_words) for end in bounds]
    reads = [functools.partial(text_files.read_words, source.read, *bound) for bound in zip(bounds, bounds[1:])]
    made = [source._replace(read=read, files=(), choices=(*source.choices, *bounds), key='') for read in reads]
    return [made[0]._replace(files=source.files, key=source.key), *made[1:]]


def shorten_texts(sources: Sequence[TextSource], settings: CorpusSettings) -> list[TextSource]:
    """Shortens raw texts before a tokenizer learns from them; see `split_text`."""
    lengths = list(map(_count_words, sources))
    kept = _kept(settings, lengths, lengths)
    reads = [functools.partial(text_files.read_words, source.read, 0, size) for source, size in zip(sources, kept)]
    return [source._replace(read=read, choices=(*source.choices, *kept)) for source, read in zip(sources, reads)]


def _count_words(source: TextSource) -> int:
    return sum(text_files.count_words(chunk.text) for chunk in source.read())
