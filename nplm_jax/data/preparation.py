"""Texts to one stream of words: cut into words in pieces, by several processes where there is much of it.

What a tokenizer learns from all of a text, such as proper nouns, takes a first pass over it.
"""

import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tqdm

from nplm_jax.config import CorpusSettings
from nplm_jax.data import prepared_texts, sources
from nplm_jax.data.formats import COMPRESSIONS, TABLES
from nplm_jax.data.prepared_texts import PreparedText
from nplm_jax.data.sources import Piece, Pieces
from nplm_jax.data.tokenizers import registry
from nplm_jax.data.tokenizers.tokenizer import Tokenizer
from nplm_jax.data.word_stream import TypeNumbers, WordStream, renumber
from nplm_jax.utils.processes import map_in_processes, num_processors

MIN_CACHED_BYTES = 2**24  # of a text that is tokenized by several processes, and kept in the cache
COMPRESSION = 8  # bytes of text in a compressed byte, about
MAX_PROCESSES = 16


def prepare(
    parts: Sequence[Iterable[Piece]],
    tokenizer: Tokenizer,
    num_processes: int = 1,
    write: Callable[[np.ndarray], Any] | None = None,
) -> PreparedText:
    """Cuts texts into one stream of words, after the tokenizer has learned from them.

    Args:
        parts: For each part of a corpus (all of it, or its training, validation and test texts) its pieces, which may
            be read several times.
        tokenizer: The tokenizer.
        num_processes: The number of processes that tokenize.
        write: Takes the numbers of the words of each piece, int32; then the stream that is returned has none.

    Raises:
        BadInput: The tokenizer cannot learn from these texts.
    """
    parallel_map: Callable[..., Iterator[Any]] = functools.partial(map_in_processes, num_processes=num_processes)
    tokenizer = tokenizer.learn(parts, parallel_map)
    kept = [np.zeros(0, np.int32)]
    append = write or kept.append
    numbers, lengths = TypeNumbers(), []
    for part in parts:
        lengths.append(0)
        for type_ids in renumber(parallel_map(functools.partial(_read, tokenizer), part), numbers):
            append(type_ids)
            lengths[-1] += len(type_ids)
    return PreparedText(WordStream(list(numbers), np.concatenate(kept)), tuple(lengths), tokenizer)


def prepare_files(
    parts: Sequence[tuple[Sequence[pathlib.Path], Iterable[Piece]]], tokenizer: Tokenizer, settings: CorpusSettings
) -> PreparedText:
    """Cuts files into one stream of words; a large text only once, as long as its files do not change.

    Args:
        parts: For each part of a corpus its files and their pieces, which may be read several times.
        tokenizer: The tokenizer.
        settings: The `corpus.*` choices.

    Raises:
        BadInput: A file is missing, damaged or no text, or changed while it was read; or the cache cannot be written.
    """
    files = [file for part, _ in parts for file in part]
    num_bytes = sum(sources.stat(file)['bytes'] for file in files)
    is_plain_text = not any(file.suffix.lower() in (*COMPRESSIONS, *TABLES, '.zip') for file in files)

    if num_bytes * (1 if is_plain_text else COMPRESSION) < MIN_CACHED_BYTES:
        return prepare([pieces for _, pieces in parts], tokenizer)

    def make(write: Callable[[np.ndarray], Any]) -> PreparedText:
        with _Progress(num_bytes if is_plain_text else None) as progress:
            watched = [Pieces(progress.watch, pieces) for _, pieces in parts]

            def write_and_show(type_ids: np.ndarray) -> None:
                write(type_ids)
                progress.add(len(type_ids))

            return prepare(watched, tokenizer, min(num_processors(), MAX_PROCESSES), write_and_show)

    choices = {name: getattr(settings, name) for name in ('name', 'paragraphs', 'column')}
    choices |= {'tokenizer': registry.to_dict(tokenizer)}
    choices |= {'parts': [[str(file.absolute()) for file in part] for part, _ in parts]}
    return prepared_texts.load_or_make(choices, files, make)


class _Progress:
    """A progress bar in words, whose total follows from the share of the bytes that has been read."""

    def __init__(self, num_bytes: int | None) -> None:
        """Takes the bytes of the text; None where they are unknown."""
        self._num_bytes, self._read = num_bytes, 0
        self._bar = tqdm.tqdm(desc='tokenizing', disable=None, unit=' words', unit_scale=True, dynamic_ncols=True)

    def __enter__(self) -> '_Progress':
        return self

    def __exit__(self, *_: Any) -> None:
        self._bar.close()

    def watch(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Counts the size of the pieces while they are read."""
        for piece in pieces:
            self._read += len(piece.text.encode())
            yield piece

    def add(self, num_words: int) -> None:
        """Shows that so many words more were tokenized."""
        if self._num_bytes and self._read:
            self._bar.total = int((self._bar.n + num_words) * max(self._num_bytes / self._read, 1))
        self._bar.update(num_words)


def _read(tokenizer: Tokenizer, piece: Piece) -> WordStream:
    return tokenizer.read(*piece)
