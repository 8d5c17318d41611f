"""Large texts that were cut into words once: a folder of the cache for each, whose arrays are mapped into memory.

`types.txt` has the different words, a line each; `type_ids.i32` their numbers in reading order; `manifest.json`, which
is written last, what they were made from. `tokens-*.i32` has the ids of the words in a vocabulary.
"""

import contextlib
import fcntl
import hashlib
import json
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nplm_jax.data import download, sources
from nplm_jax.data.word_stream import WordStream
from nplm_jax.utils import mapped_arrays
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import open_atomically, read_json, remove_leftovers, write_atomically

VERSION = 1  # of these files, and of the rules that cut a text into words
# The keys of `corpus.*` that a stream of words depends on.
SETTINGS = ('name', 'tokens', 'lowercase', 'split_possessive', 'boundary_tokens', 'numbers', 'proper_nouns', 'column')
MANIFEST, TYPES, TYPE_IDS = 'manifest.json', 'types.txt', 'type_ids.i32'

Write = Callable[[np.ndarray], Any]


class Prepared(NamedTuple):
    """The words of a corpus.

    Attributes:
        stream: All words.
        lengths: The number of words of each part: all of it, or its training, validation and test texts.
    """

    stream: WordStream
    lengths: tuple[int, ...]


def load_or_make(
    choices: Mapping[str, Any], files: Sequence[pathlib.Path], make: Callable[[Write], Prepared]
) -> Prepared:
    """Returns the prepared words of some files from the cache, or makes them and maps them.

    What is there counts only if it is complete, was made with the same choices, and the files are the same: by size
    and time of change, else by SHA-256. An interrupted preparation leaves nothing that is used.

    Args:
        choices: What the words depend on beside the content of the files: settings, and the paths by part.
        files: The files.
        make: Makes the words. It takes a function that takes the numbers of the words piece by piece.

    Raises:
        BadInput: The cache cannot be written, or a file changed while it was read.
    """
    choices = {'version': VERSION, **choices}
    name = hashlib.sha256(json.dumps(choices).encode()).hexdigest()[:16]
    folder = download.cache_folder() / 'texts' / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            if (prepared := _read(folder, files)) is None:
                remove_leftovers(folder)
                for file in folder.glob('[!.]*'):
                    file.unlink()  # and not emptied: another process may have mapped it
                _make(folder, choices, files, make)
                prepared = _read(folder, files)
            assert prepared is not None
            return prepared
    except OSError as error:
        message = f'cannot be written ({error.strerror}); set NPLM_JAX_CACHE to a folder with space'
        raise BadInput(f'{folder}: {message}') from None


def encode(type_ids_L: np.ndarray, token_ids_K: np.ndarray) -> np.ndarray:
    """Returns the ids of the words of a prepared text in a vocabulary, int32, mapped; written at the first call.

    Args:
        type_ids_L: The words, from `load_or_make`.
        token_ids_K: The id of each type.
    """
    assert isinstance(type_ids_L, np.memmap)
    folder = pathlib.Path(str(type_ids_L.filename)).parent
    path = folder / f'tokens-{hashlib.sha256(token_ids_K.tobytes()).hexdigest()[:16]}.i32'
    try:
        with _locked(folder):
            if not path.exists():
                with open_atomically(path) as file:
                    for part_L in mapped_arrays.parts(type_ids_L):
                        file.write(token_ids_K[part_L].data)
    except OSError as error:
        raise BadInput(f'{path}: cannot be written ({error.strerror})') from None
    return np.memmap(path, np.int32, 'r')


def _make(
    folder: pathlib.Path, choices: Mapping[str, Any], files: Sequence[pathlib.Path], make: Callable[[Write], Prepared]
) -> None:
    """Writes the files of a folder."""
    before = sources.fingerprint(files)
    with open_atomically(folder / TYPE_IDS) as file:
        made = make(lambda type_ids: file.write(type_ids.data))
    for path, facts in zip(files, before):
        if not _is_unchanged(path, facts):
            raise BadInput(f'{path}: changed while it was read; run again')
    types = '\n'.join(made.stream.types).encode()
    write_atomically(folder / TYPES, types)
    facts = {'lengths': made.lengths, 'num_types': len(made.stream.types), 'types_bytes': len(types)}
    manifest = {**choices, 'sources': before, **facts}
    write_atomically(folder / MANIFEST, json.dumps(manifest, indent=1) + '\n')


def _read(folder: pathlib.Path, files: Sequence[pathlib.Path]) -> Prepared | None:
    """Returns what a folder holds; None unless it is complete and was made from these files as they are."""
    if not (folder / MANIFEST).exists():
        return None
    manifest = read_json(folder / MANIFEST)
    for file, facts in zip(files, manifest['sources']):
        if not _is_unchanged(file, facts):
            print(f'{file}: has changed; it is cut into words again', file=sys.stderr)
            return None
    num_words = sum(manifest['lengths'])
    types = (folder / TYPES).read_bytes()
    if len(types) != manifest['types_bytes'] or (folder / TYPE_IDS).stat().st_size != 4 * num_words:
        return None
    type_ids_L = np.memmap(folder / TYPE_IDS, np.int32, 'r') if num_words else np.zeros(0, np.int32)
    return Prepared(WordStream(types.decode().split('\n'), type_ids_L), tuple(manifest['lengths']))


def _is_unchanged(file: pathlib.Path, facts: Mapping[str, Any]) -> bool:
    """Tells whether a file is as a fingerprint says; compares SHA-256 only where the time of change differs."""
    status = file.stat()
    if status.st_size != facts['bytes']:
        return False
    return status.st_mtime_ns == facts['mtime_ns'] or sources.fingerprint([file])[0]['sha256'] == facts['sha256']


@contextlib.contextmanager
def _locked(folder: pathlib.Path) -> Iterator[None]:
    """Waits for other processes that prepare or read this folder. The operating system frees the lock at the end."""
    with open(folder / '.lock', 'a') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f'{folder}: waiting for another process, which prepares this text', file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
