"""Tokenizes texts into one stream of words, in parallel for large texts.

Some tokenizers learn from the text, for example to find proper nouns. These tokenizers read the text once before they
tokenize it.
"""

import collections
import functools
import hashlib
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nplm_jax.config import plugins
from nplm_jax.data import prepared_texts, text_files
from nplm_jax.data.formats import COMPRESSIONS, TABLES
from nplm_jax.data.prepared_texts import PreparedText
from nplm_jax.data.text_files import TextSource
from nplm_jax.data.tokenizers import cutting, tokenizer_files
from nplm_jax.data.tokenizers.tokenizer import TextChunk, Tokenizer, check_tokens
from nplm_jax.data.word_stream import TypeNumbers, WordStream
from nplm_jax.executors import workers
from nplm_jax.executors.jobs import Job
from nplm_jax.utils.packages import package_digest
from nplm_jax.utils.progress import progress_bar

MIN_CACHED_BYTES = 2**24  # texts above this size are tokenized in parallel and cached
_CODE = package_digest('data', 'config', 'utils')  # computed at import, because the files may be edited later
COMPRESSION = 8  # typical compression ratio of text
ParallelMap = Callable[..., Iterator[Any]]  # a function with the arguments of `map`


def prepare(sources: Sequence[TextSource], tokenizer: Tokenizer, name: str) -> PreparedText:
    """Tokenizes a corpus into one stream of words. Large corpora are cached until their files change.

    Args:
        sources: The texts of the corpus.
        tokenizer: The tokenizer, which is first trained on these texts if necessary.
        name: The name of the corpus.

    Raises:
        BadInput: A file is missing, damaged, not text or changed while it was being read; the cache is not writable; or
            the tokenizer cannot learn from these texts.
    """
    files = [file for source in sources for file in source.files]
    num_bytes = sum(map(text_files.size, files))
    is_plain_text = not any(file.suffix.lower() in (*COMPRESSIONS, *TABLES, '.zip') for file in files)
    if num_bytes * (1 if is_plain_text else COMPRESSION) < MIN_CACHED_BYTES:
        return tokenize([source.read for source in sources], tokenizer)

    paths = [[str(file.absolute()) for file in source.files] for source in sources]
    choices = {'name': name, 'tokenizer': tokenizer_files.to_dict(tokenizer), 'paths': paths}
    choices |= {'choices': [list(source.choices) for source in sources]}

    def make(write: Callable[[np.ndarray], Any], folder: pathlib.Path) -> PreparedText:
        facts = {**choices, 'files': list(map(prepared_texts.facts, files))}
        parallel_map = _parallel_map(folder / prepared_texts.JOB, facts, tokenizer)
        watched = [functools.partial(_watch, source, is_plain_text) for source in sources]
        return tokenize(watched, tokenizer, parallel_map, write)

    # A cached tokenizer imports its plug-in.
    with plugins.trust([plugins.module_of(tokenizer.kind)] if plugins.is_path(tokenizer.kind) else []):
        return prepared_texts.load_or_make(choices, _code_digest(tokenizer), files, make)


def _code_digest(tokenizer: Tokenizer) -> str:
    """Returns the SHA-256 of the tokenization code, that is, of this package and the modules of a plug-in tokenizer."""
    modules = sorted({base.__module__ for base in type(tokenizer).__mro__ if base not in Tokenizer.__mro__})
    digests = [plugins.module_digest(name) for name in modules if name.partition('.')[0] != __name__.partition('.')[0]]
    of_notebook = '' if all(digests) else os.urandom(16).hex()  # code without a file may change, so no entry is reused
    return hashlib.sha256(' '.join([_CODE, of_notebook, *digests]).encode()).hexdigest()


def _parallel_map(folder: pathlib.Path, identity: Mapping[str, Any], tokenizer: Tokenizer) -> ParallelMap:
    """Returns a `map` that runs in local processes, or on a cluster as a job in `folder`."""
    executor = workers.active(is_large=True)
    if not executor.are_remote:
        return executor.map
    if plugins.is_path(tokenizer.kind):  # workers may have another version of a plug-in
        return workers.local_processes(is_large=True).map
    job = Job(folder, identity, executor)
    return lambda function, chunks: job.map(functools.partial(_apply, function), chunks)


def _apply(function: Callable[[TextChunk], Any], fields: Iterable[Any]) -> Any:
    """Applies a function to a serialized chunk."""
    return function(TextChunk(*fields))


def tokenize(
    texts: Sequence[Callable[[], Iterable[TextChunk]]],
    tokenizer: Tokenizer,
    parallel_map: ParallelMap = map,
    write: Callable[[np.ndarray], Any] | None = None,
) -> PreparedText:
    """Trains the tokenizer and tokenizes texts into one stream of words.

    Args:
        texts: One function for each text of the corpus, which returns the chunks of the text.
        tokenizer: The tokenizer.
        parallel_map: A parallel `map`; see `Tokenizer.learn`.
        write: A function that stores the type ids of a chunk, int32. If given, the returned stream contains no ids.

    Raises:
        BadInput: The tokenizer cannot learn from these texts.
    """
    tokenizer = tokenizer.learn(texts, parallel_map)
    kept = [np.zeros(0, np.int32)]
    append = write or kept.append
    numbers, lengths, is_spelled, num_paragraphs = TypeNumbers(), [], True, 0
    written: collections.Counter[str] = collections.Counter()
    for read in texts:
        lengths.append(0)
        for types, type_ids_L, special, is_spelled_here, num_here in parallel_map(
            functools.partial(_tokenize_chunk, tokenizer), read()
        ):
            written.update(special)
            is_spelled, num_paragraphs = is_spelled and is_spelled_here, num_paragraphs + num_here
            type_ids = numbers.number(types)[type_ids_L]
            append(type_ids)
            lengths[-1] += len(type_ids)
    are_separate = num_paragraphs < 2 or tokenizer.boundary_tokens or cutting.separates_paragraphs(tokenizer)
    check_tokens(tokenizer.kind, numbers)
    stream = WordStream(list(numbers), np.concatenate(kept))
    return PreparedText(stream, tuple(lengths), tokenizer, dict(written), is_spelled and are_separate)


def _tokenize_chunk(tokenizer: Tokenizer, chunk: TextChunk) -> tuple[Any, ...]:
    stream, *found = cutting.read_chunk(tokenizer, chunk)
    return *stream, *found


def _watch(source: TextSource, is_plain_text: bool) -> Iterator[TextChunk]:
    """Reads the chunks of a text with a progress bar. A tokenizer that is learned reads its training text twice."""
    num_bytes = sum(map(text_files.size, source.files)) if is_plain_text else None
    with progress_bar(num_bytes, 'tokenizing', ' bytes', delay=0) as bar:
        for chunk in source.read():
            yield chunk
            bar.update(len(chunk.text.encode()))
