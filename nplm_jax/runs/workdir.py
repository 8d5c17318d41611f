"""The folder of a run: which run it belongs to, that one process at a time uses it."""

import contextlib
import fcntl
import hashlib
import itertools
import os
import pathlib
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from ml_collections import ConfigDict

from nplm_jax import config as config_lib
from nplm_jax.config import Settings
from nplm_jax.models.registry import model_files
from nplm_jax.runs.catalog import CONFIG, CORPUS, VOCABULARY
from nplm_jax.utils.checked_fields import flatten
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import read_json, remove_leftovers

# Orbax reads the path of a checkpoint as a glob pattern, TensorStore reads \ as /, and both refuse what is not UTF-8.
_UNSAFE_CHARACTER = re.compile(r'[\[*?\\\ud800-\udfff]')


def check_path(folder: pathlib.Path) -> None:
    """Refuses a path below which no checkpoint could be read back.

    Args:
        folder: The folder of a run; it need not exist.

    Raises:
        BadInput: The path is a URL, or the absolute path has a character with a meaning for Orbax.
    """
    if re.match(r'\w+:/', str(folder)):  # pathlib makes gs:/bucket of gs://bucket
        raise BadInput(f'--workdir={folder}: is a URL; give a folder of this machine')
    path = str(folder.absolute())
    if unsafe := _UNSAFE_CHARACTER.search(path):
        allowed = 'which checkpoints cannot handle; give a UTF-8 path without [ * ? \\'
        raise BadInput(f'--workdir={folder}: {path} contains {unsafe[0]}, {allowed}')


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
        refuse_links(folder)
        if not (folder / CONFIG).exists():
            written_before = {CORPUS, VOCABULARY, *model_files(settings)}  # a killed start may leave these
            if any(not p.name.startswith('.') and p.name not in written_before for p in folder.iterdir()):
                raise BadInput(f'--workdir={folder}: is not empty and not a run; give another folder')
            return
        recorded = flatten(config_lib.to_dict(_read_config(folder)))
    except OSError as error:
        raise BadInput(f'--workdir={folder}: cannot be used ({error.strerror})') from None
    current = flatten(config_lib.to_dict(settings))
    keys = sorted(k for k in current if current[k] != recorded[k] and not k.startswith('parallel.'))
    if differences := '; '.join(f'{k}={recorded[k]!r} there, {current[k]!r} now' for k in keys):
        raise BadInput(f'--workdir={folder}: belongs to another config ({differences}); {give_another(folder)}')


def give_another(folder: pathlib.Path) -> str:
    """Returns the advice to give another folder, with the name of one that is free."""
    free = next(path for i in itertools.count(2) if not os.path.lexists(path := f'{folder}-{i}'))
    return f'give another folder, such as --workdir={shlex.quote(free)}'


def refuse_links(folder: pathlib.Path) -> None:
    """Refuses symbolic links in a folder: through one a run would write or delete outside it.

    Args:
        folder: The folder of a run. It may itself be a link, and so may the folders above it.

    Raises:
        BadInput: The folder holds a link.
    """
    if link := min((p.name for p in folder.iterdir() if p.is_symlink()), default=None):
        raise BadInput(f'--workdir={folder}: contains the symbolic link {link}; remove it or give another folder')


def read_settings(folder: pathlib.Path) -> Settings:
    """Reads the settings of the run in `folder`; the files that its model is made from are the run's copies of them.

    Raises:
        BadInput: Its config.json is missing or damaged.
    """
    settings = _read_config(folder)
    return config_lib.replace(settings, {key: str(folder.absolute() / key) for key in model_files(settings)})


def _read_config(folder: pathlib.Path) -> Settings:
    path = folder / CONFIG
    if not path.exists():
        raise BadInput(f'{folder}: no run was started there')
    try:
        return config_lib.from_record(read_json(path))
    except BadInput as error:
        raise BadInput(f'{path}: cannot be read ({error}); delete the folder or give another --workdir') from None


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
            raise BadInput(f'--workdir={folder}: another process has just removed it; run again')
        remove_leftovers(folder)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                if remove_unused and [path.name for path in folder.iterdir()] == ['.lock']:
                    (folder / '.lock').unlink()
                    folder.rmdir()


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
