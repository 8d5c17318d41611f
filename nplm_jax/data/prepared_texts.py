"""Large texts that were tokenized once: a folder of the cache for each, whose arrays are mapped into memory.

`types.txt` has the different words, a line each; `type_ids-*.i32` their numbers in reading order, int32, named by the
code and by the sizes and times of the files; `manifest.json`, which is written last, what they were made from.
`tokens-*.i32` has the ids of the words in a vocabulary.
"""

import contextlib
import hashlib
import json
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
from nplm_jax.utils.untrusted import read_json, sha256

MANIFEST, TYPES = 'manifest.json', 'types.txt'
JOB = '.job'  # the folder of a preparation that a cluster has begun

Write = Callable[[np.ndarray], Any]


class PreparedText(NamedTuple):
    """The words of a corpus.

    Attributes:
        stream: All words.
        lengths: The number of words of each part: all of it, or its training, validation and test texts.
        tokenizer: What made the words, with what it learned from the text.
        written: How often the text has each special token; see `cutting.read_piece`.
    """

    stream: WordStream
    lengths: tuple[int, ...]
    tokenizer: Tokenizer
    written: Mapping[str, int] = {}


Make = Callable[[Write, pathlib.Path], PreparedText]


def load_or_make(choices: Mapping[str, Any], code: str, files: Sequence[pathlib.Path], make: Make) -> PreparedText:
    """Returns the prepared words of some files from the cache, or makes them and maps them.

    They lie in a folder of `cache_folder() / 'texts'`, which is locked meanwhile.

    What is there counts only if the same code made it with the same choices from files of the same SHA-256. An
    interrupted preparation leaves nothing that is used.

    Args:
        choices: What the words depend on beside the content of the files: settings, and the paths by part.
        code: The digest of the code that makes the words.
        files: The files.
        make: Makes the words. It takes a function that takes the numbers of the words piece by piece, and the folder,
            in which it may keep JOB meanwhile.

    Raises:
        BadInput: The cache cannot be written, or a file changed while it was read.
    """
    name = hashlib.sha256(json.dumps(choices).encode()).hexdigest()[:16]
    folder = cache_folder() / 'texts' / name
    with locked(folder):
        if (prepared := _read(folder, code, files)) is None:
            for file in folder.glob('[!.]*'):
                file.unlink()  # and not emptied: another process may have mapped it
            prepared = _make(folder, code, files, make)
        return prepared


def encode(type_ids_L: np.ndarray, token_ids_K: np.ndarray) -> np.ndarray:
    """Returns the ids of the words of a prepared text in a vocabulary, int32, mapped; written at the first call.

    Args:
        type_ids_L: The words, from `load_or_make`.
        token_ids_K: The id of each type.

    Raises:
        BadInput: The cache cannot be written.
    """
    assert isinstance(type_ids_L, np.memmap)
    source = pathlib.Path(str(type_ids_L.filename))
    digest = hashlib.sha256(source.name.encode() + token_ids_K.tobytes()).hexdigest()[:16]
    path = source.with_name(f'tokens-{digest}.i32')
    with locked(path.parent):
        if not path.exists():
            with open_atomically(path) as file:
                for part_L in mapped_arrays.parts(type_ids_L):
                    file.write(token_ids_K[part_L].data)
        return np.memmap(path, np.int32, 'r')


def _make(folder: pathlib.Path, code: str, files: Sequence[pathlib.Path], make: Make) -> PreparedText:
    """Writes the files of a folder, and returns what it holds."""
    before = list(map(facts, files))
    name = f'type_ids-{hashlib.sha256(json.dumps([code, before]).encode()).hexdigest()[:16]}.i32'
    with open_atomically(folder / name) as file:
        made = make(lambda type_ids: file.write(np.ascontiguousarray(type_ids).data), folder)
    digests = [sha256(str(file), file) for file in files]
    for path, earlier in zip(files, before):
        if earlier != facts(path):
            raise BadInput(path, 'changed while it was read; run again')
    write_atomically(folder / TYPES, '\n'.join(made.stream.types))
    tokenizer = tokenizer_files.to_dict(made.tokenizer)
    made_from = {'code': code, 'sources': [{'sha256': digest} for digest in digests], 'tokenizer': tokenizer}
    manifest = {**made_from, 'lengths': made.lengths, 'written': made.written, 'type_ids': name}
    write_atomically(folder / MANIFEST, json.dumps(manifest) + '\n')
    shutil.rmtree(folder / JOB, ignore_errors=True)
    return made._replace(stream=WordStream(made.stream.types, _map(folder / name)))


def _map(path: pathlib.Path) -> np.ndarray:
    return np.memmap(path, np.int32, 'r') if path.stat().st_size else np.zeros(0, np.int32)


def facts(file: pathlib.Path) -> tuple[int, ...]:
    """Returns the size and times of a file, which change when somebody writes it."""
    status = file.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _read(folder: pathlib.Path, code: str, files: Sequence[pathlib.Path]) -> PreparedText | None:
    """Returns what a folder holds; None unless this code made it from these files as they are."""
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
        if len(type_ids_L) != sum(lengths):
            return None
    except (ValueError, OSError, KeyError, TypeError, AttributeError):  # BadInput is a ValueError
        return None
    for file, digest in zip(files, expected):
        if sha256(str(file), file) != digest:
            print(f'{file}: has changed; tokenizing it again', file=sys.stderr)
            return None
    return PreparedText(WordStream(types, type_ids_L), lengths, tokenizer, written)


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """Makes a folder and locks it; waits for other processes that do. The system frees the lock at the end.

    A block may remove the folder.

    Raises:
        BadInput: The folder cannot be written, now or inside the block.
    """
    try:
        with _lock(folder):
            remove_leftovers(folder)
            yield
    except OSError as error:
        message = f'cannot be written ({error.strerror or error}); set NPLM_JAX_CACHE to a folder with space'
        raise BadInput(folder, message) from None


def _lock(folder: pathlib.Path) -> contextlib.AbstractContextManager[Any]:
    """Makes a folder and locks it."""
    lock = FileLock(folder / '.lock')
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # another process has removed the folder meanwhile
            try:
                return lock.acquire(timeout=0)
            except Timeout:
                print(f'{folder}: waiting for another process that uses this folder', file=sys.stderr)
                return lock.acquire()
