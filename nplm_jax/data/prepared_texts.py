"""Caches large tokenized texts as memory-mapped arrays.

Each text has a folder with the following files:

- `types.txt`: The distinct words, one per line.
- `type_ids-*.i32`: The index in `types.txt` of each word of the text, int32. The name of the file depends on the code
  and on the sizes and times of the source files.
- `tokens-*.i32`: The id of each word of the text in a vocabulary, int32.
- `manifest.json`: The lengths of the parts, and the inputs from which the first two files were made. This file is
  written after them, so an entry without it is incomplete.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock, Timeout

from nplm_jax.data import mapped_arrays
from nplm_jax.data.tokenizers import tokenizer_files
from nplm_jax.data.tokenizers.tokenizer import Tokenizer
from nplm_jax.data.word_stream import WordStream
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import cache_folder, open_atomically, remove_leftovers, write_atomically
from nplm_jax.utils.untrusted import open_regular, read_json, sha256

MANIFEST, TYPES = 'manifest.json', 'types.txt'
_RETRIES = 100  # maximum number of new attempts to lock a folder if other processes remove it in the meantime
JOB = '.job'  # the folder of an unfinished preparation on a cluster

Write = Callable[[np.ndarray], Any]


class PreparedText(NamedTuple):
    """The words of a corpus.

    Attributes:
        stream: All words.
        lengths: The number of words of each part. The parts are the whole corpus, or its training, validation and
            test texts.
        tokenizer: The trained tokenizer.
        written: The number of occurrences of each special token in the text; see `cutting.read_chunk`.
        is_spelled: Whether the tokens reproduce the text except for whitespace; see `token_text.spells`.
    """

    stream: WordStream
    lengths: tuple[int, ...]
    tokenizer: Tokenizer
    written: Mapping[str, int] = {}
    is_spelled: bool = True


Make = Callable[[Write, pathlib.Path], PreparedText]


def load_or_make(choices: Mapping[str, Any], code: str, files: Sequence[pathlib.Path], make: Make) -> PreparedText:
    """Returns the tokenized words of files from the cache. Tokenizes the files if the entry is missing or outdated.

    A cache entry is a folder in `cache_folder() / 'texts'`, which is locked during the call. An entry is valid only for
    the same code, choices and file contents (SHA-256). Entries left by an interrupted preparation are not used.

    Args:
        choices: The settings and paths. The words depend only on these choices, the code and the file contents.
        code: The digest of the tokenization code.
        files: The source files.
        make: A function that tokenizes the files. Its first argument is a function that appends type ids to the entry.
            Its second argument is the folder of the entry, in which it may create the folder JOB.

    Raises:
        BadInput: The cache is not writable, or a file changed while it was being read.
    """
    name = hashlib.sha256(json.dumps(choices).encode()).hexdigest()[:16]
    folder = cache_folder() / 'texts' / name
    with locked(folder):
        if (prepared := _read(folder, code, files)) is None:
            for file in folder.glob('[!.]*'):
                file.unlink()  # instead of truncating it, because another process may have mapped it
            prepared = _make(folder, code, files, make)
        return prepared


def encode(type_ids_L: np.ndarray, token_ids_K: np.ndarray) -> np.ndarray:
    """Returns the int32 vocabulary ids of a prepared text, memory-mapped from the cache.

    The first call writes the ids to the cache.

    Args:
        type_ids_L: The type ids of a stream from `load_or_make`.
        token_ids_K: The vocabulary id of each type.

    Raises:
        BadInput: The cache is not writable.
    """
    assert isinstance(type_ids_L, np.memmap)
    source = pathlib.Path(str(type_ids_L.filename))
    digest = hashlib.sha256(source.name.encode() + token_ids_K.tobytes()).hexdigest()[:16]
    path = source.with_name(f'tokens-{digest}.i32')
    with locked(path.parent):
        if not path.exists():
            with open_atomically(path) as file:
                for chunk_L in mapped_arrays.chunks(type_ids_L):
                    file.write(token_ids_K[chunk_L].data)
        return np.memmap(path, np.int32, 'r')


def _make(folder: pathlib.Path, code: str, files: Sequence[pathlib.Path], make: Make) -> PreparedText:
    """Creates a cache entry and returns its content."""
    before = list(map(facts, files))
    name = f'type_ids-{hashlib.sha256(json.dumps([code, before]).encode()).hexdigest()[:16]}.i32'
    with open_atomically(folder / name) as file:
        made = make(lambda type_ids: file.write(np.ascontiguousarray(type_ids).data), folder)
    digests = [sha256(str(file), file) for file in files]
    for path, earlier in zip(files, before):
        if earlier != facts(path):
            raise BadInput(path, 'was changed while it was being read; run the command again')
    write_atomically(folder / TYPES, '\n'.join(made.stream.types))
    tokenizer = tokenizer_files.to_dict(made.tokenizer)
    made_from = {'code': code, 'sources': [{'sha256': digest} for digest in digests], 'tokenizer': tokenizer}
    facts_made = {'lengths': made.lengths, 'written': made.written, 'is_spelled': made.is_spelled}
    manifest = {**made_from, **facts_made, 'type_ids': name}
    write_atomically(folder / MANIFEST, json.dumps(manifest) + '\n')
    shutil.rmtree(folder / JOB, ignore_errors=True)
    return made._replace(stream=WordStream(made.stream.types, _map(folder / name)))


def _map(path: pathlib.Path) -> np.ndarray:
    return np.memmap(path, np.int32, 'r') if path.stat().st_size else np.zeros(0, np.int32)


def facts(file: pathlib.Path) -> tuple[int, ...]:
    """Returns a file's size and timestamps, which change when it is written. Raises BadInput if the file is missing."""
    with open_regular(str(file), file) as opened:
        status = os.fstat(opened.fileno())
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _read(folder: pathlib.Path, code: str, files: Sequence[pathlib.Path]) -> PreparedText | None:
    """Returns the content of a cache entry, or None if it is missing or outdated."""
    if not (folder / MANIFEST).exists():
        return None
    try:
        manifest = read_json(folder / MANIFEST)
        if manifest['code'] != code:
            return None
        expected = [source['sha256'] for source in manifest['sources']]
        types = (folder / TYPES).read_bytes().decode().split('\n')
        tokenizer = tokenizer_files.from_dict(manifest['tokenizer'], str(folder / MANIFEST))
        type_ids_L, lengths = _map(folder / manifest['type_ids']), tuple(manifest['lengths'])
        written = {str(token): int(count) for token, count in manifest['written'].items()}
        is_spelled = bool(manifest['is_spelled'])
        if len(type_ids_L) != sum(lengths):
            return None
    except (ValueError, OSError, KeyError, TypeError, AttributeError):  # BadInput is a ValueError
        return None
    for file, digest in zip(files, expected):
        if sha256(str(file), file) != digest:
            print(f'{file}: the file has changed; tokenizing it again', file=sys.stderr)
            return None
    return PreparedText(WordStream(types, type_ids_L), lengths, tokenizer, written, is_spelled)


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """Creates a folder and locks it within a `with` block.

    If another process holds the lock, the function waits. The block may remove the folder. If the process dies, the
    operating system releases the lock.

    Raises:
        BadInput: The folder cannot be created or locked, or the block raises an OSError.
    """
    try:
        with _lock(folder):
            remove_leftovers(folder)
            yield
    except OSError as error:
        message = f'cannot be written ({error.strerror or error}); set NPLM_JAX_CACHE to another folder'
        raise BadInput(folder, message) from None


def _lock(folder: pathlib.Path, retries: int = _RETRIES) -> contextlib.AbstractContextManager[Any]:
    """Creates a folder and locks it."""
    lock = FileLock(folder / '.lock')
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            return lock.acquire(timeout=0)
        except Timeout:
            print(f'{folder}: waiting for another process that uses this folder', file=sys.stderr)
            return lock.acquire()
    except (FileNotFoundError, FileExistsError):  # usually because another process has just removed the folder
        if not retries:
            raise
        return _lock(folder, retries - 1)
