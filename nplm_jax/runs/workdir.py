"""The folder of a run: whose it is, that one process at a time uses it, and that its text has not changed."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict

from nplm_jax import config as config_lib
from nplm_jax.data import vocabulary
from nplm_jax.data.dataset import Dataset
from nplm_jax.distributed import multihost
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import read_json, remove_leftovers, write_atomically

CONFIG, CORPUS, VOCABULARY = 'config.json', 'corpus.json', 'vocabulary.txt'
_WRITTEN_BEFORE = (CORPUS, VOCABULARY)  # than the config, which makes the folder the run's: a kill may leave them
# Orbax takes the path of what it wrote for a glob pattern, TensorStore a \ for a /, and neither takes what is no UTF-8.
_MISREAD = re.compile(r'[\[*?\\\ud800-\udfff]')
_PLACES = ('corpus.path', 'corpus.valid_path', 'corpus.test_path')  # may be others on each machine


def check_path(folder: pathlib.Path) -> None:
    """Refuses a path below which no checkpoint could be read back.

    Args:
        folder: of a run, there or not.

    Raises:
        BadInput: a character of the whole path has a meaning for Orbax.
    """
    if found := _MISREAD.search(whole := str(folder.absolute())):
        allowed = 'its checkpoints could not be read; give a folder whose whole path is UTF-8 without [ * ? \\'
        raise BadInput(f'--workdir={folder}: {whole} has a {found[0]}: {allowed}')


def check(folder: pathlib.Path, wanted: config_lib.Settings) -> None:
    """Makes the folder unless it is there. Raises: BadInput when it is another's, or cannot be made or used."""
    check_path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _refuse_links(folder)
        if (folder / CONFIG).exists():
            there = config_lib.to_dict(read_settings(folder))
        elif any(not p.name.startswith('.') and p.name not in _WRITTEN_BEFORE for p in folder.iterdir()):
            raise BadInput(f'--workdir={folder}: is not empty and no run of this program; give another folder')
        else:
            return
    except OSError as error:
        raise BadInput(f'--workdir={folder}: cannot be used ({error.strerror})') from None
    here, there = (flatten_dict(tree, sep='.') for tree in (config_lib.to_dict(wanted), there))
    keys = sorted(k for k in here if here[k] != there[k] and not k.startswith('parallel.'))  # on any devices
    if differ := '; '.join(f'{k}={there[k]!r} there, {here[k]!r} now' for k in keys):
        raise BadInput(f'--workdir={folder}: belongs to another config ({differ}); give another folder')


def _refuse_links(folder: pathlib.Path) -> None:
    """What a run writes, empties and deletes lies in its folder, and none of it in another's.

    Args:
        folder: of a run; it may itself be a link, and so may what lies above it.

    Raises:
        BadInput: something in the folder is a link, whatever it leads to.
    """
    if link := min((p.name for p in folder.iterdir() if p.is_symlink()), default=None):
        raise BadInput(f'--workdir={folder}: {link} is a link, which no run may hold; remove it or give another folder')


def read_settings(folder: pathlib.Path) -> config_lib.Settings:
    """The settings of the run in `folder`. Raises: BadInput when its config.json is missing or damaged."""
    path = folder / CONFIG
    if not path.exists():
        raise BadInput(f'{folder}: no run was started there')
    try:
        return config_lib.from_config(read_json(path))
    except BadInput as error:
        raise BadInput(f'{path}: damaged ({error}); delete the folder or give another --workdir') from None


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """Holds the folder for this process; the lock goes with the process, however it ends. Raises: BadInput."""
    try:
        file = open(folder / '.lock', 'a', opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o666))
    except OSError as error:
        raise BadInput(f'--workdir={folder}: cannot be written ({error.strerror})') from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInput(f'--workdir={folder}: another process is using it; wait, or give another folder') from None
        remove_leftovers(folder)
        yield


def record_inputs(folder: pathlib.Path, wanted: config_lib.Settings, data: Dataset) -> None:
    """Writes what makes the folder this run's, once its text could be read; what is there already must agree.

    Raises: BadInput when the run was started on another text, or the folder cannot be written.
    """
    facts = {'words': {k: len(s) for k, s in data.splits.items()}, 'sha256': _digest(data).hex()}
    try:
        if (folder / CONFIG).exists():
            try:
                there = read_json(folder / CORPUS)
            except BadInput as error:
                raise BadInput(f'{error}; delete the folder or give another --workdir') from None
            if there != facts:
                raise BadInput(f'--workdir={folder}: was started on another text; give another folder')
            return
        write_atomically(folder / CORPUS, json.dumps(facts, indent=2) + '\n')
        vocabulary.save(data.vocabulary, folder / VOCABULARY)
        write_atomically(folder / CONFIG, json.dumps(config_lib.to_dict(wanted), indent=2) + '\n')
    except OSError as error:
        raise BadInput(f'--workdir={folder}: cannot be written ({error.strerror})') from None


def check_config(wanted: config_lib.Settings) -> None:
    """Compares the settings of all processes of a run; every process calls it.

    Where a text lies may differ from machine to machine: `check_text` compares what it holds.

    Args:
        wanted: the settings of this process.

    Raises:
        BadInput: in the processes whose settings are not the first one's, with the keys that differ.
    """
    if jax.process_count() == 1:
        return
    text = json.dumps(config_lib.to_dict(wanted)).encode()
    padded = text.ljust(multihost.allreduce_max(len(text)))
    first = json.loads(multihost.broadcast_from_primary(np.frombuffer(padded, np.uint8)).tobytes())
    here, there = (flatten_dict(tree, sep='.') for tree in (json.loads(text), first))
    keys = sorted(k for k in here.keys() | there.keys() if here.get(k) != there.get(k) and k not in _PLACES)
    if differ := '; '.join(f'{k}={here.get(k)!r} here, {there.get(k)!r} there' for k in keys):
        raise BadInput(
            f"--distributed: the config of this process is not the first one's ({differ}); give all the same"
        )


def check_text(data: Dataset) -> None:
    """Every process of a run calls it. Raises: BadInput in those whose text is not the first one's."""
    if jax.process_count() == 1:
        return
    own = np.frombuffer(_digest(data), np.uint8)
    if (multihost.broadcast_from_primary(own) != own).any():
        raise BadInput('--distributed: this process reads another text than the first; give all the same corpus')


def _digest(data):
    digest = hashlib.sha256(np.asarray(data.tokens_T).tobytes())
    digest.update(repr((data.vocabulary.words, data.splits)).encode())
    return digest.digest()


def plain(name: str) -> str:
    """The name of a folder, with an underscore for each character that it cannot have.

    Args:
        name: any text.

    Returns:
        A name without a slash that `check_path` accepts.
    """
    return _MISREAD.sub('_', name.replace('/', '_'))


def run_name(overrides: Mapping[str, Any]) -> str:
    """What was overridden as part of a folder's name: `h=50,seed=2`; whole keys where two end alike."""
    last = [key.rpartition('.')[2] for key in overrides]
    parts = []
    for key, short in zip(overrides, last):
        value = plain(str(overrides[key]))
        parts.append(f'{key if last.count(short) > 1 else short}={value[-40:]}')
    name = ','.join(parts)
    return name if len(name.encode()) < 200 else hashlib.sha256(name.encode()).hexdigest()[:16]
