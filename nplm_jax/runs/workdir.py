"""The folder of a run: which run it belongs to, that one process at a time uses it, that its text has not changed."""

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import pathlib
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from nplm_jax import config as config_lib
from nplm_jax.config import Settings
from nplm_jax.data import vocabulary
from nplm_jax.data.dataset import Dataset
from nplm_jax.distributed import multihost
from nplm_jax.runs.catalog import CONFIG, CORPUS, VOCABULARY
from nplm_jax.utils import mapped_arrays
from nplm_jax.utils.checked_fields import flatten
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import read_json, remove_leftovers, write_atomically

_WRITTEN_BEFORE_CONFIG = (CORPUS, VOCABULARY)  # a killed start may leave these; a folder is a run's once it has CONFIG
# Orbax reads the path of a checkpoint as a glob pattern, TensorStore reads \ as /, and both refuse what is not UTF-8.
_UNSAFE_CHARACTER = re.compile(r'[\[*?\\\ud800-\udfff]')
_KEYS_OF_MACHINE = ('corpus.path', 'corpus.valid_path', 'corpus.test_path')  # may differ between processes of a run


def check_path(folder: pathlib.Path) -> None:
    """Refuses a path below which no checkpoint could be read back.

    Args:
        folder: The folder of a run; it need not exist.

    Raises:
        BadInput: The absolute path has a character with a meaning for Orbax.
    """
    path = str(folder.absolute())
    if unsafe := _UNSAFE_CHARACTER.search(path):
        allowed = 'its checkpoints could not be read; give a folder whose whole path is UTF-8 without [ * ? \\'
        raise BadInput(f'--workdir={folder}: {path} has a {unsafe[0]}: {allowed}')


def check(folder: pathlib.Path, settings: Settings) -> None:
    """Makes the folder of a run, or checks that an existing one belongs to the run.

    Args:
        folder: The folder of the run.
        settings: The settings of the run. `parallel.*` may differ from those of the folder.

    Raises:
        BadInput: The folder belongs to another run, or cannot be made or used.
    """
    check_path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _refuse_links(folder)
        if not (folder / CONFIG).exists():
            if any(not p.name.startswith('.') and p.name not in _WRITTEN_BEFORE_CONFIG for p in folder.iterdir()):
                raise BadInput(f'--workdir={folder}: is not empty and no run of this program; give another folder')
            return
        recorded = flatten(config_lib.to_dict(read_settings(folder)))
    except OSError as error:
        raise BadInput(f'--workdir={folder}: cannot be used ({error.strerror})') from None
    current = flatten(config_lib.to_dict(settings))
    keys = sorted(k for k in current if current[k] != recorded[k] and not k.startswith('parallel.'))
    if differences := '; '.join(f'{k}={recorded[k]!r} there, {current[k]!r} now' for k in keys):
        raise BadInput(f'--workdir={folder}: belongs to another config ({differences}); {_give_another(folder)}')


def _give_another(folder: pathlib.Path) -> str:
    """Returns the advice to give another folder, with the name of one that is free."""
    free = next(path for i in itertools.count(2) if not os.path.lexists(path := f'{folder}-{i}'))
    return f'give another folder, such as --workdir={shlex.quote(free)}'


def _refuse_links(folder: pathlib.Path) -> None:
    """Refuses symbolic links in a folder: through one a run would write or delete outside it.

    Args:
        folder: The folder of a run. It may itself be a link, and so may the folders above it.

    Raises:
        BadInput: The folder holds a link.
    """
    if link := min((p.name for p in folder.iterdir() if p.is_symlink()), default=None):
        raise BadInput(f'--workdir={folder}: {link} is a link, which no run may hold; remove it or give another folder')


def read_settings(folder: pathlib.Path) -> Settings:
    """Reads the settings of the run in `folder`. Raises: BadInput when its config.json is missing or damaged."""
    path = folder / CONFIG
    if not path.exists():
        raise BadInput(f'{folder}: no run was started there')
    try:
        return config_lib.from_config(read_json(path))
    except BadInput as error:
        raise BadInput(f'{path}: damaged ({error}); delete the folder or give another --workdir') from None


@contextlib.contextmanager
def locked(folder: pathlib.Path, remove_unused: bool = False) -> Iterator[None]:
    """Locks the folder for this process. The operating system frees the lock, however the process ends.

    Args:
        folder: The folder of a run, which exists.
        remove_unused: Whether to delete the folder at the end if nothing was written to it, as by a run refused.

    Raises:
        BadInput: Another process holds the lock, or the folder cannot be written.
    """
    try:
        file = open(folder / '.lock', 'a', opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o666))
    except OSError as error:
        raise BadInput(f'--workdir={folder}: cannot be written ({error.strerror})') from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(f'--workdir={folder}: another process is using it; wait, or give another folder') from None
        if not os.fstat(file.fileno()).st_nlink:  # deleted by `remove_unused` in another process
            raise BadInput(f'--workdir={folder}: another process was using it just now; run again')
        remove_leftovers(folder)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                if remove_unused and [path.name for path in folder.iterdir()] == ['.lock']:
                    (folder / '.lock').unlink()
                    folder.rmdir()


def record_inputs(folder: pathlib.Path, settings: Settings, data: Dataset) -> None:
    """Records config, text and vocabulary in the folder of a run, or compares the text with the recorded one.

    Args:
        folder: The folder of the run.
        settings: The settings of the run.
        data: The text of the run.

    Raises:
        BadInput: The run was started on another text, or the folder cannot be written.
    """
    facts = {'words': {k: len(s) for k, s in data.splits.items()}, 'sha256': _digest(data).hex()}
    try:
        if (folder / CONFIG).exists():
            try:
                recorded = read_json(folder / CORPUS)
            except BadInput as error:
                raise BadInput(f'{error}; delete the folder or give another --workdir') from None
            if recorded != facts:
                raise BadInput(f'--workdir={folder}: was started on another text; {_give_another(folder)}')
            return
        write_atomically(folder / CORPUS, json.dumps(facts, indent=2) + '\n')
        vocabulary.save(data.vocabulary, folder / VOCABULARY)
        write_atomically(folder / CONFIG, json.dumps(config_lib.to_dict(settings), indent=2) + '\n')
    except OSError as error:
        raise BadInput(f'--workdir={folder}: cannot be written ({error.strerror})') from None


def check_config(settings: Settings) -> None:
    """Compares the settings of all processes of a run; every process calls this.

    The paths of a text may differ from machine to machine: `check_text` compares the texts.

    Args:
        settings: The settings of this process.

    Raises:
        BadInput: Some keys have other values in this process than in the first one.
    """
    if jax.process_count() == 1:
        return
    text = json.dumps(flatten(config_lib.to_dict(settings))).encode()
    padded = text.ljust(multihost.allreduce_max(len(text)))
    primary = json.loads(multihost.broadcast_from_primary(np.frombuffer(padded, np.uint8)).tobytes())
    local = json.loads(text)
    keys = sorted(k for k in local.keys() | primary.keys() if local.get(k) != primary.get(k))
    keys = [k for k in keys if k not in _KEYS_OF_MACHINE]
    if differences := '; '.join(f'{k}={local.get(k)!r} here, {primary.get(k)!r} there' for k in keys):
        raise BadInput(
            f"--distributed: the config of this process is not the first one's ({differences}); give all the same"
        )


def check_text(data: Dataset) -> None:
    """Compares the texts of all processes of a run; every process calls this.

    Args:
        data: The text of this process.

    Raises:
        BadInput: This process reads another text than the first one.
    """
    if jax.process_count() == 1:
        return
    digest = np.frombuffer(_digest(data), np.uint8)
    if (multihost.broadcast_from_primary(digest) != digest).any():
        raise BadInput('--distributed: this process reads another text than the first; give all the same corpus')


def _digest(data: Dataset) -> bytes:
    """Computes the SHA-256 of the words, the vocabulary and the splits."""
    digest = hashlib.sha256()
    for part_L in mapped_arrays.parts(data.tokens_T):
        digest.update(part_L.data)
    digest.update(repr((data.vocabulary.words, data.splits)).encode())
    return digest.digest()


def safe_folder_name(name: str) -> str:
    """Replaces the characters that the name of a run's folder cannot have, / among them, by underscores."""
    return _UNSAFE_CHARACTER.sub('_', name.replace('/', '_'))


def default_name(config: ConfigDict, overrides: Mapping[str, Any]) -> str:
    """Returns the name of a run's folder: the config's name and what was overridden, such as `brown-mlp9,h=50`.

    A user's text gives its own name in place of `text`: `novel,h=50` for corpus.path=/home/me/novel.txt.

    Args:
        config: The config of the run.
        overrides: Values by flattened key that the command line set.
    """
    name, shown = config.name, {key: value for key, value in overrides.items() if key != 'name'}
    if 'corpus.path' in shown and config.corpus.name == 'text' and (name == 'text' or name.startswith('text-')):
        title = pathlib.Path(os.path.abspath(os.path.expanduser(shown.pop('corpus.path')))).stem
        name = '_'.join(title.split() or ['text'])[:40] + name.removeprefix('text')
    return ','.join(filter(None, (safe_folder_name(name), run_name(shown))))


def run_name(overrides: Mapping[str, Any]) -> str:
    """Returns overridden keys and values as part of a folder's name: `h=50,seed=2`.

    Args:
        overrides: Values by flattened key. Of a key only the last part is shown, unless two have the same last part; of
            a path only the last part as well.
    """
    last_parts = [key.rpartition('.')[2] for key in overrides]
    parts = []
    for key, last_part in zip(overrides, last_parts):
        text = str(overrides[key])
        value = safe_folder_name(pathlib.PurePath(text).name if last_part.endswith('path') else text)
        parts.append(f'{key if last_parts.count(last_part) > 1 else last_part}={value[-40:]}')
    name = ','.join(parts)
    return name if len(name.encode()) < 200 else hashlib.sha256(name.encode()).hexdigest()[:16]
