"""The folder of a run: its owner, its lock against other processes, and a record of the run's inputs.

It records the config, digests of the text and of the modules of plug-ins, and a copy of each of the user's files that
the model is made from, named after the config's key. These records are compared with the inputs whenever the run is
started or its text is read again, and between the processes of a run.
"""

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import pathlib
import re
import shlex
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from nplm_jax.config import parts, plugins
from nplm_jax.config import settings as config_lib
from nplm_jax.config.settings import Settings
from nplm_jax.data import corpora, encoding, vocabulary_files
from nplm_jax.data.dataset import Dataset
from nplm_jax.data.tokenizers import tokenizer_files
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.distributed import multihost
from nplm_jax.models import network_from_settings
from nplm_jax.ngram import storage
from nplm_jax.reporting import catalog
from nplm_jax.reporting.catalog import CONFIG, CORPUS, MINUTES, VOCABULARY
from nplm_jax.training.word_source import resolve_input
from nplm_jax.utils.errors import BadInput, first_few, shorten
from nplm_jax.utils.io import expand, read_bytes, read_json, remove_leftovers, sha256, write_atomically

# Orbax reads the path of a checkpoint as a glob pattern, TensorStore reads \ as /, and both refuse what is not UTF-8.
_UNSAFE_CHARACTER = re.compile(r'[\[*?\\\ud800-\udfff]')
AUTO = {**network_from_settings.AUTO, 'train.input': 'auto'}  # what keys may be until a run begins
TEACHER = 'output.teacher'
TEXT = 'text'  # key of the text's digest beside the config keys of the other inputs
_MAX_SHOWN = 100  # characters of a value in a message
_MAX_IN_NAME = 40  # characters of a value in the name of a folder


class FolderInUse(BadInput):
    """Another process holds the lock of a folder."""


def check_path(folder: pathlib.Path) -> None:
    """Refuses a path below which no checkpoint could be read back.

    Args:
        folder: The folder of a run; it need not exist.

    Raises:
        BadInput: The path is a URL, or the absolute path has a character with a meaning for Orbax.
    """
    if re.match(r'\w+:/', str(folder)):  # pathlib makes gs:/bucket of gs://bucket
        raise BadInput('--workdir', 'is a URL; give a folder of this machine', value=folder)
    path = str(folder.absolute())
    if unsafe := _UNSAFE_CHARACTER.search(path):
        allowed = 'which checkpoints cannot handle; give a UTF-8 path without [ * ? \\'
        raise BadInput('--workdir', f'{path} contains {unsafe[0]}, {allowed}', value=folder)


def check(folder: pathlib.Path, settings: Settings) -> None:
    """Makes the folder of a run, or checks that an existing one belongs to the run.

    Args:
        folder: The folder of the run.
        settings: The settings of the run. `parallel.*` may differ from those of the folder, and so may keys that
            have their value in AUTO. A run that has trained nothing starts over with any settings.

    Raises:
        BadInput: The folder belongs to another run, or cannot be made or used.
    """
    check_path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        refuse_links(folder)
        if not (folder / CONFIG).exists():
            # A killed start leaves these.
            written_before = {CORPUS, MINUTES, VOCABULARY, *tokenizer_files.FILES, *parts.files(settings)}
            if any(not p.name.startswith('.') and p.name not in written_before for p in folder.iterdir()):
                raise BadInput('--workdir', 'is not empty and not a run; give another folder', value=folder)
            return
        record = _read_record(folder, remedy='; delete the folder or give another --workdir')
        if not has_trained(folder):
            return
        recorded = config_lib.to_flat(_check_options(folder, record))
    except OSError as error:
        raise BadInput('--workdir', f'cannot be used ({error.strerror})', value=folder) from None
    current = config_lib.to_flat(settings)
    different = sorted(k for k in current if current[k] != recorded.get(k) and not k.startswith('parallel.'))
    different = [k for k in different if current[k] != AUTO.get(k)]  # `resolve` takes the recorded value
    if different:
        differences = first_few([f'{k}={_show(recorded.get(k))} there, {_show(current[k])} now' for k in different])
        raise BadInput('--workdir', f'belongs to another config ({differences}); {give_another(folder)}', value=folder)


def _show(value: Any) -> str:
    return shorten(repr(value), _MAX_SHOWN)


def has_trained(folder: pathlib.Path) -> bool:
    """Returns whether a run has what a new start would lose: a checkpoint, a model or results."""
    checkpoints = folder / 'checkpoints'
    saved = checkpoints.iterdir() if checkpoints.is_dir() else ()
    is_finished = any((folder / name).exists() for name in (catalog.RESULTS, storage.MODEL_FILE))
    return is_finished or any('.orbax-checkpoint-tmp' not in path.name for path in saved)


def resolve(folder: pathlib.Path, settings: Settings, data: Dataset, platform: str) -> Settings:
    """Returns the settings of a network without the values in AUTO: as recorded, else as this machine has it.

    The first process of a run decides for all, and so does the processor that a run began on: it has the same numerics
    wherever it is resumed. Every process calls this.

    Args:
        folder: The folder of the run.
        settings: The settings of the run.
        data: The text of the run.
        platform: That of the devices that train it.
    """
    here = config_lib.to_flat(network_from_settings.resolve_auto(settings, platform)) | {
        'train.input': resolve_input(data)
    }
    if multihost.is_primary() and (folder / CONFIG).exists() and has_trained(folder):
        here |= config_lib.to_flat(_read_config(folder))
    configured, read = config_lib.to_flat(settings), {'train.input'}.union(*parts.readers(settings).values())
    values = {key: here[key] for key, auto in AUTO.items() if configured[key] == auto and key in read}
    values |= {key: first for key, (_, first) in multihost.differences_from_primary(values).items()}
    return config_lib.replace(settings, values)


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
        raise BadInput(
            '--workdir', f'contains the symbolic link {link}; remove it or give another folder', value=folder
        )


def read_settings(folder: pathlib.Path) -> Settings:
    """Reads the settings of the run in `folder`; the files that its model is made from are the run's copies of them.

    Raises:
        BadInput: Its config.json is missing or damaged.
    """
    settings = _read_config(folder)
    return config_lib.replace(settings, {key: str(folder.absolute() / key) for key in parts.files(settings)})


def _read_config(folder: pathlib.Path) -> Settings:
    path = folder / CONFIG
    if not path.exists():
        what = 'is a file; give the folder of a run' if folder.is_file() else 'no run was started there'
        raise BadInput(folder, what)
    return _check_options(folder, _read_record(folder))


def _check_options(folder: pathlib.Path, record: Settings) -> Settings:
    """Returns the settings of a folder with the options of their plug-ins, which are imported."""
    try:
        return config_lib.replace(record, {})
    except BadInput as error:
        raise BadInput(folder / CONFIG, str(error)) from None


def _read_record(folder: pathlib.Path, remedy: str = '') -> Settings:
    """Returns the settings in a folder's config.json; no plug-in is imported. For `remedy` see `_read_json`."""
    record = _read_json(folder / CONFIG, remedy)
    try:  # the folder may be whole: another version wrote it, or a plug-in is elsewhere
        return config_lib.from_record(record)
    except BadInput as error:
        raise BadInput(folder / CONFIG, f'cannot be read ({error})') from None


def read_vocabulary(folder: pathlib.Path) -> Vocabulary:
    """Reads the vocabulary and the tokenizer of the run in `folder`.

    Raises:
        BadInput: A file that the run's model is read with is missing or damaged.
    """
    catalog.check_files(folder)
    return vocabulary_files.load(folder / VOCABULARY)


def _read_json(path: pathlib.Path, remedy: str = '') -> dict[str, Any]:
    """Reads a file of a run's folder. Raises BadInput, which ends with the remedy, if the file is damaged."""
    try:
        return read_json(path)
    except BadInput as error:
        raise BadInput(path, f'cannot be read ({error}){remedy}') from None


@contextlib.contextmanager
def claimed(folder: pathlib.Path, settings: Settings) -> Iterator[None]:
    """Checks and locks the folder of a run; a new folder to which nothing was written is deleted at the end.

    Raises:
        BadInput: See `check` and `locked`.
    """
    is_new = not folder.exists()
    check(folder, settings)
    with locked(folder, remove_unused=is_new):
        check(folder, settings)  # again: another process may have made it its own just now
        yield


@contextlib.contextmanager
def locked(folder: pathlib.Path, remove_unused: bool = False) -> Iterator[None]:
    """Locks the folder for this process. The operating system frees the lock, however the process ends.

    Args:
        folder: The folder of a run, which exists.
        remove_unused: Whether to delete the folder at the end if nothing was written to it, as by a run refused.

    Raises:
        FolderInUse: Another process holds the lock.
        BadInput: The folder cannot be written.
    """
    try:
        file = open(folder / '.lock', 'a', opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o666))
    except OSError as error:
        raise BadInput('--workdir', f'cannot be written ({error.strerror})', value=folder) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            allowed = 'another process is using it; wait, or give another folder'
            raise FolderInUse('--workdir', allowed, value=folder) from None
        if not os.fstat(file.fileno()).st_nlink:  # deleted by `remove_unused` in another process
            raise BadInput('--workdir', 'another process has just removed it; run again', value=folder)
        remove_leftovers(folder)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                if remove_unused and [path.name for path in folder.iterdir()] == ['.lock']:
                    (folder / '.lock').unlink()
                    folder.rmdir()


def text_files(settings: Settings) -> dict[str, str] | None:
    """Returns the SHA-256 of each file of the user's text by path; None for a text that a plug-in returns.

    Raises:
        BadInput: A file is missing or unreadable.
    """
    if plugins.is_path(settings.corpus.name):
        return None
    return {str(file): sha256(str(file), file) for file in corpora.files(settings.corpus)}


def model_digests(settings: Settings) -> dict[str, str]:
    """Returns the SHA-256 of each file and plug-in that a run is made from by config key; '' for a missing file."""
    files = {key: expand(key, path) for key, path in parts.files(settings).items()}
    digests = {key: sha256(f'{key}={str(file)!r}', file) if file.is_file() else '' for key, file in files.items()}
    return digests | code_digests(settings) | teacher_digest(settings)


def teacher_digest(settings: Settings) -> dict[str, str]:
    """Returns the SHA-256 of what the files of the teachers say, by config key; '' if one of them is missing."""
    if not (value := settings.output.teacher):
        return {}
    try:
        digests = [catalog.digest(folder) for folder in catalog.split_runs(TEACHER, value)]
    except BadInput:
        return {TEACHER: ''}
    return {TEACHER: hashlib.sha256(''.join(digests).encode()).hexdigest()}


def code_digests(settings: Settings, plugin_keys: Iterable[str] = config_lib.OPTION_SECTIONS) -> dict[str, str]:
    """Returns the SHA-256 of the module of each plug-in by config key; see `plugins.digest`.

    Those of installed packages are left out: a run outlives another version of them, as it does one of JAX.

    Args:
        settings: The settings of a run.
        plugin_keys: The keys whose plug-ins count.
    """
    values = config_lib.to_flat(settings)
    paths = {key: values[key] for key in plugin_keys if plugins.is_path(values[key])}
    digests = {key: plugins.digest(key, path) for key, path in paths.items()}
    return {key: digest for key, digest in digests.items() if digest and plugins.is_own(paths[key])}


def text_digest(data: Dataset) -> dict[str, str]:
    """Returns the SHA-256 of a text's words, vocabulary and splits, under TEXT."""
    return {TEXT: encoding.identity(data)}


def record_inputs(
    folder: pathlib.Path,
    settings: Settings,
    data: Dataset,
    files: Mapping[str, str] | None = None,
    digests: Mapping[str, str] | None = None,
) -> None:
    """Records config, text, vocabulary and model files in the folder of a run, or compares them with the recorded ones.

    They are compared if the run has trained anything. config.json comes last: it has the digests of the others.

    Args:
        folder: The folder of the run.
        settings: The settings of the run.
        data: The text of the run.
        files: What `text_files` returned before the text was read; None for a text that was not read from files.
        digests: What `model_digests` returned before the model was made, and `text_digest`; None takes the files as
            they are now.

    Raises:
        BadInput: The run was started on another text or with other files, or the folder cannot be written.
    """
    digests = {**model_digests(settings), **text_digest(data)} if digests is None else digests
    try:
        if (folder / CONFIG).exists() and has_trained(folder):
            catalog.check_files(folder)
            refuse_changes(folder, difference(folder, settings, digests))
            return
        for key, path in parts.files(settings).items():
            content = read_bytes(f'{key}={path!r}', expand(key, path))
            if hashlib.sha256(content).hexdigest() != digests[key]:
                raise BadInput(key, 'changed while it was read; run again', value=path)
            write_atomically(folder / key, content)
        record = {
            'words': {name: len(span) for name, span in data.splits.items()},
            'sha256': digests[TEXT],
            'test_sha256': data.test_sha256,
            'files': files,
            'code': {key: digests[key] for key in config_lib.OPTION_SECTIONS if key in digests},
            **({'teacher': digests[TEACHER]} if TEACHER in digests else {}),
        }
        write_atomically(folder / CORPUS, json.dumps(record, indent=2) + '\n')
        vocabulary_files.save(data.vocabulary, folder / VOCABULARY)
        catalog.write_config(folder, settings)
    except OSError as error:
        raise BadInput('--workdir', f'cannot be written ({error.strerror})', value=folder) from None


def refuse_changes(folder: pathlib.Path, difference: str) -> None:
    """Raises BadInput that advises another folder, unless the difference is empty."""
    if difference:
        raise BadInput('--workdir', f'{difference}; {give_another(folder)}', value=folder)


def difference(folder: pathlib.Path, settings: Settings, digests: Mapping[str, str]) -> str:
    """Returns which input differs from the one that a run was started with; '' if none does, or nothing was trained.

    Args:
        folder: The folder of the run.
        settings: The settings that name the inputs.
        digests: The digests of the inputs to compare, by key. A missing file, with the digest '', is not compared: the
            run's folder holds a copy.

    Raises:
        BadInput: The run's record is damaged.
    """
    if not has_trained(folder):
        return ''
    record, values = read_record(folder), config_lib.to_flat(settings)
    code = record.get('code')  # older runs have none
    recorded = {**(code if isinstance(code, dict) else {}), TEXT: record.get('sha256'), TEACHER: record.get('teacher')}
    recorded |= {key: sha256(str(folder / key), folder / key) for key in parts.files(settings) if key in digests}
    for key, now in digests.items():
        then = recorded.get(key, now)
        if now in ('', then):
            continue
        if key == TEXT:
            return 'was started on a different text'
        change = f'has changed since the run was started (sha256 {str(then)[:12]} then, {now[:12]} now)'
        if key not in config_lib.OPTION_SECTIONS:
            return f'{key}={values[key]!r} {change}'
        module = values[key].partition(':')[0]
        return f'{key}={values[key]!r}: the module {module} {change}; restore it to go on with this run'
    return ''


def read_record(folder: pathlib.Path) -> dict[str, Any]:
    """Returns what corpus.json says of the run's text. Raises BadInput where it is damaged."""
    return _read_json(folder / CORPUS)


def check_config(settings: Settings) -> None:
    """Compares the settings of all processes of a run; every process calls this.

    The paths of a text may differ from machine to machine: `check_inputs` compares the texts.

    Args:
        settings: The settings of this process.

    Raises:
        BadInput: Some keys have other values in this process than in the first one.
    """
    values = {
        key: value for key, value in config_lib.to_flat(settings).items() if key not in config_lib.KEYS_OF_MACHINE
    }
    if different := multihost.differences_from_primary(values):
        shown = first_few([f'{k}={_show(here)} here, {_show(there)} there' for k, (here, there) in different.items()])
        raise BadInput(
            '--distributed',
            f'the config of this process differs from that of the first ({shown}); give all processes the same',
        )


def check_inputs(settings: Settings, digests: Mapping[str, str]) -> None:
    """Compares the inputs of all processes of a run; every process calls this.

    Args:
        settings: The settings, which are those of all processes.
        digests: The digests of this process's inputs, by key.

    Raises:
        BadInput: This process reads another text or another file than the first one.
    """
    for key, (here, there) in multihost.differences_from_primary(digests).items():
        if key == TEXT:
            raise BadInput(
                '--distributed',
                'this process reads a different text from the first; give all processes the same corpus',
            )
        digest_pair = f'sha256 {here[:12] or "missing"} here, {there[:12] or "missing"} there'
        path = config_lib.to_flat(settings)[key]
        raise BadInput('--distributed', f'{key}={path!r}: differs from the file of the first process ({digest_pair})')


def safe_folder_name(name: str) -> str:
    """Returns a name for a folder, of ASCII letters, digits, dots, hyphens and underscores.

    A name that had other characters ends in a digest, which keeps it unique.

    Examples:
        >>> safe_folder_name('kneser_ney_5'), safe_folder_name('my text')
        ('kneser_ney_5', 'my_text-7330d2')
    """
    plain = ''.join(c for c in unicodedata.normalize('NFKD', name) if not unicodedata.combining(c))
    safe = re.sub(r'[^A-Za-z0-9_.-]+|__+', '_', plain)[-_MAX_IN_NAME:]  # two underscores separate the parts of a name
    return safe if safe == name else f'{safe}-{_short_digest(name)}'


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:6]


def default_name(config: ConfigDict, overrides: Mapping[str, Any], minutes: float | None = None) -> str:
    """Returns the name of a run's folder: the config's name and the overridden keys, such as `brown-mlp9__h_50`.

    A user's text gives its own name in place of `text`: `novel__h_50` for corpus.path=/home/me/novel.txt.

    Args:
        config: The config of the run.
        overrides: Values by flattened key that the command line set.
        minutes: The minutes of training that were asked for, if any.
    """
    name, shown = config.name, {key: value for key, value in overrides.items() if key != 'name'}
    if minutes is not None:
        shown['minutes'] = f'{minutes:g}'
    if 'corpus.path' in shown and config.corpus.name == 'text' and (name == 'text' or name.startswith('text-')):
        title = pathlib.Path(os.path.abspath(os.path.expanduser(shown.pop('corpus.path')))).stem
        titled = safe_folder_name('_'.join(title.split() or ['text']))
        name = titled + safe_folder_name(name.removeprefix('text'))
    else:
        name = safe_folder_name(name)
    return '__'.join(filter(None, (name, run_name(shown))))


def run_name(overrides: Mapping[str, Any]) -> str:
    """Returns overridden keys and values as part of a folder's name: `h_50__seed_2`.

    Args:
        overrides: Values by flattened key. Of a key only the last part is shown, unless two have the same last part; of
            a path only the last part as well.
    """
    last_parts = [key.rpartition('.')[2] for key in overrides]
    parts = []
    for key, last_part in zip(overrides, last_parts):
        text = str(value := overrides[key])
        text = text.replace('e+', 'e') if isinstance(value, float) else text
        shown = safe_folder_name(pathlib.PurePath(text).name if last_part.endswith('path') else text)
        parts.append(f'{key if last_parts.count(last_part) > 1 else last_part}_{shown}')
    name = '__'.join(parts)
    return name if len(name) < 200 else hashlib.sha256(name.encode()).hexdigest()[:16]


def unique_names(all_overrides: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the `run_name` of each point of a sweep; those that differ only in folders of a path end in a digest."""
    names = [run_name(overrides) for overrides in all_overrides]
    digests = [_short_digest(repr(sorted(overrides.items()))) for overrides in all_overrides]
    alike: dict[str, set[str]] = {}
    for name, digest in zip(names, digests):
        alike.setdefault(name, set()).add(digest)
    return [f'{name}-{digest}' if len(alike[name]) > 1 else name for name, digest in zip(names, digests)]
