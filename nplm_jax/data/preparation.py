"""Texts to one stream of words: cut into words in pieces, by several processes or machines where there is much of it.

What a tokenizer learns from all of a text, such as proper nouns, takes a first pass over it.
"""

import collections
import functools
import hashlib
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tqdm

from nplm_jax.config import plugins
from nplm_jax.data import prepared_texts, sources
from nplm_jax.data.formats import COMPRESSIONS, TABLES
from nplm_jax.data.prepared_texts import PreparedText
from nplm_jax.data.sources import Part
from nplm_jax.data.tokenizers import cutting, tokenizer_files
from nplm_jax.data.tokenizers.tokenizer import Piece, Tokenizer, check_tokens
from nplm_jax.data.word_stream import TypeNumbers, WordStream
from nplm_jax.executors import workers
from nplm_jax.executors.jobs import Job
from nplm_jax.utils.progress import progress_bar

MIN_CACHED_BYTES = 2**24  # of a text that is tokenized by several processes, and kept in the cache
_CODE = plugins.package_digest('data', 'config', 'utils')  # now: the files may be edited while this process lasts
COMPRESSION = 8  # bytes of text in a compressed byte, about
ParallelMap = Callable[..., Iterator[Any]]  # like `map`


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

    paths = [[str(file.absolute()) for file in part.files] for part in parts]
    choices = {'name': name, 'tokenizer': tokenizer_files.to_dict(tokenizer), 'parts': paths}
    choices |= {'choices': [list(part.choices) for part in parts]}

    def make(write: Callable[[np.ndarray], Any], folder: pathlib.Path) -> PreparedText:
        facts = {**choices, 'files': list(map(prepared_texts.facts, files))}
        parallel_map = _parallel_map(folder / prepared_texts.JOB, facts, tokenizer)
        with progress_bar(num_bytes if is_plain_text else None, 'tokenizing', ' bytes', delay=0) as bar:
            watched = [functools.partial(_watch, part.read, bar) for part in parts]
            return tokenize(watched, tokenizer, parallel_map, write)

    is_plugin = plugins.is_path(tokenizer.kind)
    with plugins.trust([plugins.module_of(tokenizer.kind)] if is_plugin else []):  # what is prepared names it too
        return prepared_texts.load_or_make(choices, _code_digest(tokenizer), files, make)


def _code_digest(tokenizer: Tokenizer) -> str:
    """Returns the digest of the code that makes words: that of this package and of a plug-in's modules."""
    modules = sorted({base.__module__ for base in type(tokenizer).__mro__ if base not in Tokenizer.__mro__})
    digests = [plugins.module_digest(name) for name in modules if name.partition('.')[0] != __name__.partition('.')[0]]
    of_notebook = '' if all(digests) else os.urandom(16).hex()  # never the same
    return hashlib.sha256(' '.join([_CODE, of_notebook, *digests]).encode()).hexdigest()


def _parallel_map(folder: pathlib.Path, identity: Mapping[str, Any], tokenizer: Tokenizer) -> ParallelMap:
    """Returns the map of this machine's processes, or that of a cluster, whose job lies in a folder."""
    current = workers.current(is_large=True)
    if not current.are_remote:
        return current.map
    if plugins.is_path(tokenizer.kind):  # a plug-in, which the workers may have in another version
        return workers.here(is_large=True).map
    job = Job(folder, identity, current)
    return lambda function, pieces: job.map(functools.partial(_apply, function), pieces)


def _apply(function: Callable[[Piece], Any], fields: Iterable[Any]) -> Any:
    """Applies a function to a piece that came through a file."""
    return function(Piece(*fields))


def tokenize(
    parts: Sequence[Callable[[], Iterable[Piece]]],
    tokenizer: Tokenizer,
    parallel_map: ParallelMap = map,
    write: Callable[[np.ndarray], Any] | None = None,
) -> PreparedText:
    """Cuts texts into one stream of words, after the tokenizer has learned from them.

    Args:
        parts: Read the pieces of each part of a corpus.
        tokenizer: The tokenizer.
        parallel_map: `map`, by several processes or machines; see `Tokenizer.learn`.
        write: Takes the numbers of the words of each piece, int32; then the stream that is returned has none.

    Raises:
        BadInput: The tokenizer cannot learn from these texts.
    """
    tokenizer = tokenizer.learn(parts, parallel_map)
    kept = [np.zeros(0, np.int32)]
    append = write or kept.append
    numbers, lengths = TypeNumbers(), []
    written: collections.Counter[str] = collections.Counter()
    for read in parts:
        lengths.append(0)
        for types, type_ids_L, special in parallel_map(functools.partial(_tokenize_piece, tokenizer), read()):
            written.update(special)
            type_ids = numbers.number(types)[type_ids_L]
            append(type_ids)
            lengths[-1] += len(type_ids)
    check_tokens(tokenizer.kind, numbers)
    return PreparedText(WordStream(list(numbers), np.concatenate(kept)), tuple(lengths), tokenizer, dict(written))


def _tokenize_piece(tokenizer: Tokenizer, piece: Piece) -> tuple[Sequence[str], np.ndarray, dict[str, int]]:
    stream, written = cutting.read_piece(tokenizer, piece)
    return *stream, written


def _watch(read: Callable[[], Iterable[Piece]], bar: tqdm.tqdm) -> Iterator[Piece]:
    """Reads pieces, and advances the progress bar by their bytes."""
    for piece in read():
        yield piece
        bar.update(len(piece.text.encode()))
