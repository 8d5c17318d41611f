"""Texts to one stream of words: cut into words in pieces, by several processes where there is much of it.

What a tokenizer learns from all of a text, such as proper nouns, takes a first pass over it.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from nplm_jax.data import prepared_texts, sources
from nplm_jax.data.formats import COMPRESSIONS, TABLES
from nplm_jax.data.prepared_texts import PreparedText
from nplm_jax.data.sources import Part, Piece
from nplm_jax.data.tokenizers import tokenizer_files
from nplm_jax.data.tokenizers.tokenizer import Tokenizer, check_tokens
from nplm_jax.data.word_stream import TypeNumbers, WordStream
from nplm_jax.utils import plugins
from nplm_jax.utils.processes import map_in_processes, num_processors
from nplm_jax.utils.progress import ProgressBar

MIN_CACHED_BYTES = 2**24  # of a text that is tokenized by several processes, and kept in the cache
COMPRESSION = 8  # bytes of text in a compressed byte, about
MAX_PROCESSES = 16


def prepare(parts: Sequence[Part], tokenizer: Tokenizer, name: str) -> PreparedText:
    """Cuts a corpus into one stream of words; a large one only once, as long as its files do not change.

    Args:
        parts: The parts of the corpus.
        tokenizer: The tokenizer.
        name: The corpus.

    Raises:
        BadInput: A file is missing, damaged or no text, or changed while it was read; or the cache cannot be written;
            or the tokenizer cannot learn from these texts.
    """
    files = [file for part in parts for file in part.files]
    num_bytes = sum(map(sources.size, files))
    is_plain_text = not any(file.suffix.lower() in (*COMPRESSIONS, *TABLES, '.zip') for file in files)
    if num_bytes * (1 if is_plain_text else COMPRESSION) < MIN_CACHED_BYTES:
        return tokenize([part.read for part in parts], tokenizer)

    def make(write: Callable[[np.ndarray], Any]) -> PreparedText:
        with ProgressBar(num_bytes if is_plain_text else None, 'tokenizing', ' bytes') as bar:
            watched = [functools.partial(_watch, part.read, bar) for part in parts]
            return tokenize(watched, tokenizer, min(num_processors(), MAX_PROCESSES), write)

    paths = [[str(file.absolute()) for file in part.files] for part in parts]
    choices = {'name': name, 'tokenizer': tokenizer_files.to_dict(tokenizer), 'parts': paths}
    choices |= {'choices': [list(part.choices) for part in parts]}
    if plugins.is_path(tokenizer.kind):
        choices['code'] = plugins.digest('corpus.tokens', tokenizer.kind)
    return prepared_texts.load_or_make(choices, files, make)


def tokenize(
    parts: Sequence[Callable[[], Iterable[Piece]]],
    tokenizer: Tokenizer,
    num_processes: int = 1,
    write: Callable[[np.ndarray], Any] | None = None,
) -> PreparedText:
    """Cuts texts into one stream of words, after the tokenizer has learned from them.

    Args:
        parts: Read the pieces of each part of a corpus.
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
    for read in parts:
        lengths.append(0)
        for types, type_ids_L in parallel_map(functools.partial(_tokenize_piece, tokenizer), read()):
            type_ids = numbers.number(types)[type_ids_L]
            append(type_ids)
            lengths[-1] += len(type_ids)
    check_tokens(tokenizer.kind, numbers)
    return PreparedText(WordStream(list(numbers), np.concatenate(kept)), tuple(lengths), tokenizer)


def _tokenize_piece(tokenizer: Tokenizer, piece: Piece) -> WordStream:
    return tokenizer.read(*piece)


def _watch(read: Callable[[], Iterable[Piece]], bar: ProgressBar) -> Iterator[Piece]:
    """Reads pieces, and advances the progress bar by their bytes."""
    for piece in read():
        yield piece
        bar.update(len(piece.text.encode()))
