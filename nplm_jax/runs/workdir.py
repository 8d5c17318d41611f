"""Validates and locks run folders, and reads and compares their settings."""

import contextlib
import errno
import itertools
import os
import pathlib
import re
import shlex
import shutil
from collections.abc import Iterator
from typing import Any

from filelock import FileLock, Timeout

from nplm_jax.config import settings as config_lib
from nplm_jax.config.records import KEYS_OF_MACHINE
from nplm_jax.config.settings import Settings, from_record, user_files
from nplm_jax.data import vocabulary_files
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.tokenizers import tokenizer_files
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.distributed import multihost
from nplm_jax.ngram import storage
from nplm_jax.reporting import catalog
from nplm_jax.reporting.catalog import CONFIG, CORPUS, MINUTES, VOCABULARY
from nplm_jax.runs import network_from_settings
from nplm_jax.training.word_source import input_mode
from nplm_jax.utils.errors import BadInput, Resumable, first_few, shorten
from nplm_jax.utils.io import remove_leftovers, write_failure_as_bad_input
from nplm_jax.utils.untrusted import read_json

# Characters that Orbax interprets as glob patterns, that TensorStore reads as /, or that are not valid UTF-8.
_UNSAFE_CHARACTER = re.compile(r'[\[*?\\\ud800-\udfff]')
AUTO = {**network_from_settings.AUTO, 'train.input': 'auto'}  # values replaced when a run starts
_MAX_SHOWN = 100  # maximum characters of a value in a message


class FolderInUse(BadInput):
    """An error raised if another process holds the lock of a folder."""


def check_path(folder: pathlib.Path) -> None:
    """Rejects paths from which checkpoints could not be restored.

    Args:
        folder: A run folder, which need not exist.

    Raises:
        BadInput: The path is a URL, or the absolute path contains a character in `_UNSAFE_CHARACTER`.
    """
    if re.match(r'\w+:/', str(folder)):  # pathlib turns gs://bucket into gs:/bucket
        raise BadInput('--workdir', 'must be a local folder, not a URL', value=folder)
    path = str(folder.absolute())
    if unsafe := _UNSAFE_CHARACTER.search(path):
        allowed = 'which checkpoints do not support; choose a UTF-8 path without the characters [ * ? \\'
        raise BadInput('--workdir', f'{path} contains {unsafe[0]}, {allowed}', value=folder)


def ensure_folder(folder: pathlib.Path, settings: Settings) -> None:
    """Creates the folder of a run, or checks that an existing folder belongs to the run.

    Args:
        folder: The folder of the run.
        settings: The settings of the run. They may differ from the recorded settings in `parallel.*` and in keys whose
            value is automatic (AUTO). A run that has not trained yet may be restarted with any settings.

    Raises:
        BadInput: The folder belongs to another run, or cannot be created or used.
    """
    check_path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / CONFIG).exists():
            # A process that was killed at the start may have left these files behind.
            written_before = {CORPUS, MINUTES, VOCABULARY, *tokenizer_files.FILES, *user_files(settings)}
            if any(not p.name.startswith('.') and p.name not in written_before for p in folder.iterdir()):
                raise BadInput('--workdir', 'is neither empty nor a run folder; choose another folder', value=folder)
            return
        record = _read_record(folder, remedy='; delete the folder or choose another --workdir')
        if not has_trained(folder):
            return
        recorded = config_lib.to_flat(record)
    except OSError as error:
        raise BadInput('--workdir', f'cannot be used ({error.strerror})', value=folder) from None
    current = config_lib.to_flat(settings)
    keys = sorted(k for k in current | recorded if not k.startswith('parallel.'))
    # For keys with automatic values, `pin_auto_values` uses the recorded values.
    different = [k for k in keys if current.get(k) not in (recorded.get(k), AUTO.get(k, ...))]
    if different:
        differences = first_few([f'{k}={_show(recorded.get(k))} there, {_show(current.get(k))} now' for k in different])
        raise BadInput('--workdir', f'belongs to another config ({differences}); {give_another(folder)}', value=folder)


def _show(value: Any) -> str:
    return shorten(repr(value), _MAX_SHOWN)


def has_trained(folder: pathlib.Path) -> bool:
    """Returns whether a run has a checkpoint, a model or results."""
    checkpoints = folder / 'checkpoints'
    saved = checkpoints.iterdir() if checkpoints.is_dir() else ()
    is_finished = any((folder / name).exists() for name in (catalog.RESULTS, storage.MODEL_FILE))
    return is_finished or any('.orbax-checkpoint-tmp' not in path.name for path in saved)


def pin_auto_values(folder: pathlib.Path, settings: Settings, data: Dataset, platform: str) -> Settings:
    """Replaces the automatic values in AUTO with values recorded by a started run, or with values for this machine.

    All processes use the values of the first process. A restarted run keeps the values of the machine on which it was
    started, so that the numerical results do not change. Every process must call this function.

    Args:
        folder: The folder of the run.
        settings: The settings of the run.
        data: The text of the run.
        platform: The platform of the training devices.
    """
    configured = config_lib.to_flat(settings)
    values = {key: auto for key, auto in AUTO.items() if configured.get(key, ...) == auto}
    if multihost.is_primary():
        if (folder / CONFIG).exists() and has_trained(folder):
            resolved = config_lib.to_flat(_read_config(folder))
        else:
            resolved = config_lib.to_flat(network_from_settings.resolve_auto(settings, platform))
            resolved['train.input'] = input_mode(data)
        values = {key: resolved[key] for key in values}
    values |= {key: first for key, (_, first) in multihost.differences_from_primary(values).items()}
    return config_lib.replace(settings, values)


def give_another(folder: pathlib.Path) -> str:
    """Returns advice to choose another folder, and suggests an unused name."""
    free = next(path for i in itertools.count(2) if not os.path.lexists(path := f'{folder}-{i}'))
    return f'choose another folder, such as --workdir={shlex.quote(free)}'


def read_settings(folder: pathlib.Path) -> Settings:
    """Reads the settings of the run in `folder`. Replaces the paths of user files with the paths of their copies.

    Raises:
        BadInput: config.json is missing or damaged.
    """
    settings = _read_config(folder)
    return config_lib.replace(settings, {key: str(folder.absolute() / key) for key in user_files(settings)})


def _read_config(folder: pathlib.Path) -> Settings:
    path = folder / CONFIG
    if not path.exists():
        what = 'must be a run folder, not a file' if folder.is_file() else 'no run was started in this folder'
        raise BadInput(folder, what)
    settings = _read_record(folder)
    try:
        config_lib.require_imported(settings)
    except BadInput as error:
        raise BadInput(path, str(error)) from None
    return settings


def _read_record(folder: pathlib.Path, remedy: str = '') -> Settings:
    """Returns the settings in config.json without importing plug-ins. For `remedy`, see `_read_json`."""
    record = _read_json(folder / CONFIG, remedy)
    try:  # fails if another version wrote the folder, or if its plug-in is missing
        return from_record(record)
    except BadInput as error:
        raise BadInput(folder / CONFIG, f'cannot be read ({error})') from None


def read_vocabulary(folder: pathlib.Path) -> Vocabulary:
    """Reads the vocabulary and the tokenizer of the run in `folder`.

    Raises:
        BadInput: A file required to read the model is missing or damaged.
    """
    catalog.check_files(folder)
    return vocabulary_files.load(folder / VOCABULARY)


def _read_json(path: pathlib.Path, remedy: str = '') -> dict[str, Any]:
    """Reads a JSON file in a run folder. If it is damaged, raises BadInput with `remedy` at the end of the message."""
    try:
        return read_json(path)
    except BadInput as error:
        raise BadInput(path, f'cannot be read ({error}){remedy}') from None


@contextlib.contextmanager
def claimed(folder: pathlib.Path, settings: Settings) -> Iterator[None]:
    """Checks and locks the folder of a run. At the end of the block, deletes the folder if it is new and still empty.

    Raises:
        BadInput: See `ensure_folder` and `locked`.
    """
    is_new = not folder.exists()
    ensure_folder(folder, settings)
    with locked(folder):
        try:
            ensure_folder(folder, settings)  # check again, because another process may have claimed it
            yield
        finally:
            if is_new and not any(path.name != '.lock' for path in folder.glob('*')):
                shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """Locks a folder within the block. On file systems that support locks, the lock also ends with the process.

    Args:
        folder: An existing run folder.

    Raises:
        FolderInUse: Another process holds the lock.
        BadInput: The folder cannot be written.
    """
    with write_failure_as_bad_input('--workdir', folder):
        try:
            lock = FileLock(folder / '.lock').acquire(timeout=0)
        except Timeout:
            problem = 'is in use by another process; wait or choose another folder'
            raise FolderInUse('--workdir', problem, value=folder) from None
    with lock:
        remove_leftovers(folder)
        yield


def describe_failure(error: OSError, folder: pathlib.Path) -> str:
    """Describes a failure to use the folder of a run. Returns '' if the error has another source, such as a plug-in."""
    if isinstance(error, Resumable):
        return str(error)
    files = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, (str, bytes))]
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f'{next(iter(files), folder)}: {error.strerror}; free some space'
    is_own = any(pathlib.Path(os.path.abspath(name)).is_relative_to(folder.absolute()) for name in files)
    return str(error) if is_own else ''


def check_config(settings: Settings) -> None:
    """Compares the settings of all processes of a run. Every process must call this function.

    Paths of texts are skipped, because they may differ between machines. `check_inputs` compares the texts instead.

    Args:
        settings: The settings of this process.

    Raises:
        BadInput: The value of a key differs from the value in the first process.
    """
    values = {key: value for key, value in config_lib.to_flat(settings).items() if key not in KEYS_OF_MACHINE}
    if different := multihost.differences_from_primary(values):
        shown = first_few([f'{k}={_show(here)}, not {_show(there)}' for k, (here, there) in different.items()])
        raise BadInput(
            '--distributed',
            f'the config differs from the config of the first process ({shown}); all processes need the same config',
        )
