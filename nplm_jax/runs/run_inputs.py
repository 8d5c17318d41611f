"""Inputs of a run, recorded in its folder.

The record has the config, digests of the text and of the modules of plug-ins, and a copy of each of the user's files
that the model is made from, named after the config's key. It is compared with the inputs whenever the run is started or
its text is read again, and between the processes of a run.
"""

import hashlib
import json
import pathlib
from collections.abc import Collection, Mapping
from typing import Any

from nplm_jax.config import plugins
from nplm_jax.config import settings as config_lib
from nplm_jax.config.settings import Settings
from nplm_jax.data import corpora, encoding, vocabulary_files
from nplm_jax.data.dataset import Dataset
from nplm_jax.distributed import multihost
from nplm_jax.reporting import catalog
from nplm_jax.reporting.catalog import CONFIG, CORPUS, VOCABULARY
from nplm_jax.runs.workdir import give_another, has_trained
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import expand, write_atomically
from nplm_jax.utils.untrusted import read_bytes, read_json, sha256

TEACHER = 'output.teacher'
TEXT = 'text'  # key of the text's digest beside the config keys of the other inputs


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
    files = {key: expand(key, path) for key, path in config_lib.user_files(settings).items()}
    digests = {key: sha256(f'{key}={str(file)!r}', file) if file.is_file() else '' for key, file in files.items()}
    return digests | code_digests(settings) | teacher_digest(settings)


def teacher_of(settings: Settings) -> str:
    """Returns what `output.teacher` says; '' if the run has no such key."""
    return getattr(settings.output, 'teacher', '')


def teacher_digest(settings: Settings) -> dict[str, str]:
    """Returns the SHA-256 of what the files of the teachers say, by config key; '' if one of them is missing."""
    if not (value := teacher_of(settings)):
        return {}
    try:
        digests = [catalog.digest(folder) for folder in catalog.split_runs(TEACHER, value)]
    except BadInput:
        return {TEACHER: ''}
    return {TEACHER: hashlib.sha256(''.join(digests).encode()).hexdigest()}


def code_digests(settings: Settings, plugin_keys: Collection[str] = config_lib.CHOOSERS) -> dict[str, str]:
    """Returns the SHA-256 of the module of each plug-in by config key; see `plugins.digest`.

    Those of installed packages are left out: a run outlives another version of them, as it does one of JAX.

    Args:
        settings: The settings of a run.
        plugin_keys: The keys whose plug-ins count.
    """
    paths = config_lib.plugins_of(settings, plugin_keys)
    with config_lib.trusting_settings(settings):
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
            refuse_changes(folder, difference(folder, settings, digests))
            return
        for key, path in config_lib.user_files(settings).items():
            content = read_bytes(f'{key}={path!r}', expand(key, path))
            if hashlib.sha256(content).hexdigest() != digests[key]:
                raise BadInput(key, 'changed while it was read; run again', value=path)
            write_atomically(folder / key, content)
        record = {
            'words': {name: len(span) for name, span in data.splits.items()},
            'sha256': digests[TEXT],
            'test_sha256': data.test_sha256,
            'files': files,
            'code': {key: digests[key] for key in config_lib.CHOOSERS if key in digests},
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
    catalog.check_files(folder)
    record, values = read_record(folder), config_lib.to_flat(settings)
    recorded = {**record.get('code', {}), TEXT: record.get('sha256'), TEACHER: record.get('teacher')}
    recorded |= {
        key: sha256(str(folder / key), folder / key) for key in config_lib.user_files(settings) if key in digests
    }
    for key, now in digests.items():
        then = recorded.get(key, now)
        if now in ('', then):
            continue
        if key == TEXT:
            return 'was started on a different text'
        change = f'has changed since the run was started (sha256 {str(then)[:12]} then, {now[:12]} now)'
        if key not in config_lib.CHOOSERS:
            return f'{key}={values[key]!r} {change}'
        module = plugins.module_of(values[key])
        return f'{key}={values[key]!r}: the module {module} {change}; restore it to go on with this run'
    return ''


def read_record(folder: pathlib.Path) -> dict[str, Any]:
    """Returns what corpus.json says of the run's text. Raises BadInput where it is damaged."""
    return read_json(folder / CORPUS)


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
