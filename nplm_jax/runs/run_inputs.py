"""Records the inputs of a run in the run folder.

The record consists of the config, digests of the text and of plug-in modules, and copies of the user's files that the
model needs. Each copy is named after its config key. Inputs are compared with the record whenever the run is started or
its text is read again. The processes of a distributed run also compare their inputs.
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
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand, write_atomically, write_failure_as_bad_input
from nplm_jax.utils.untrusted import read_bytes, read_json, sha256

TEACHER = 'output.teacher'
TEXT = 'text'  # key of the text's digest; other digests are keyed by config keys


def text_files(settings: Settings) -> dict[str, str] | None:
    """Returns the SHA-256 digest of each corpus file, by path. Returns None if a plug-in provides the corpus.

    Raises:
        BadInput: A file is missing or unreadable.
    """
    if plugins.is_path(settings.corpus.name):
        return None
    return {str(file): sha256(str(file), file) for file in corpora.files(settings.corpus)}


def model_digests(settings: Settings) -> dict[str, str]:
    """Returns the SHA-256 digests of a run's files and plug-ins, by config key. A missing file has the digest ''."""
    paths = config_lib.user_files(settings)
    if plugins.is_file(name := settings.corpus.tokenizer.name):  # the run keeps a copy of this tokenizer file
        paths['corpus.tokens'] = name
    files = {key: expand(key, path) for key, path in paths.items()}
    digests = {key: sha256(f'{key}={str(file)!r}', file) if file.is_file() else '' for key, file in files.items()}
    return digests | code_digests(settings) | teacher_digest(settings)


def teacher_of(settings: Settings) -> str:
    """Returns the value of `output.teacher`, or '' if the run has no such key."""
    return getattr(settings.output, 'teacher', '')


def teacher_digest(settings: Settings) -> dict[str, str]:
    """Returns a digest of the teachers' files, under the key `output.teacher`. It is '' if a teacher is missing."""
    if not (value := teacher_of(settings)):
        return {}
    try:
        digests = [catalog.digest(folder) for folder in catalog.split_runs(TEACHER, value)]
    except BadInput:
        return {TEACHER: ''}
    return {TEACHER: hashlib.sha256(''.join(digests).encode()).hexdigest()}


def code_digests(settings: Settings, plugin_keys: Collection[str] = config_lib.CHOOSERS) -> dict[str, str]:
    """Returns the SHA-256 digests of the modules of plug-ins, by config key. See `plugins.digest`.

    Modules of installed packages are skipped. Users may upgrade these packages during a run, just as they may upgrade
    JAX.

    Args:
        settings: The settings of a run.
        plugin_keys: The config keys of the plug-ins to include.
    """
    paths = config_lib.plugins_of(settings, plugin_keys)
    with config_lib.trusting_settings(settings):
        digests = {key: plugins.digest(key, path) for key, path in paths.items()}
    return {key: digest for key, digest in digests.items() if digest and plugins.is_own(paths[key])}


def text_digest(data: Dataset) -> dict[str, str]:
    """Returns the SHA-256 digest of a text's words, vocabulary and splits, under the key TEXT."""
    return {TEXT: encoding.identity(data)}


def record_inputs(
    folder: pathlib.Path,
    settings: Settings,
    data: Dataset,
    files: Mapping[str, str] | None = None,
    digests: Mapping[str, str] | None = None,
) -> None:
    """Records the config, text, vocabulary and files of a run in its folder, or compares them with the record.

    If the run has a checkpoint, a model or results, the inputs are compared with the record. Otherwise, they are
    recorded. config.json is written last, because it contains the digests of the other files.

    Args:
        folder: The folder of the run.
        settings: The settings of the run.
        data: The text of the run.
        files: The result of `text_files`, called before the text was read. None for a text that was not read from
            files.
        digests: The results of `text_digest` and `model_digests`, merged. `model_digests` must be called before the
            model is created. If None, the digests are computed from the current files.

    Raises:
        BadInput: The run was started on a different text or with different files, or the folder is not writable.
    """
    digests = {**model_digests(settings), **text_digest(data)} if digests is None else digests
    with write_failure_as_bad_input('--workdir', folder):
        if (folder / CONFIG).exists() and has_trained(folder):
            refuse_changes(folder, difference(folder, settings, digests))
            return
        for key, path in config_lib.user_files(settings).items():
            content = read_bytes(f'{key}={path!r}', expand(key, path))
            if hashlib.sha256(content).hexdigest() != digests[key]:
                raise BadInput(key, 'was changed while it was being read; run the command again', value=path)
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


def refuse_changes(folder: pathlib.Path, difference: str) -> None:
    """Raises a BadInput that states the difference and suggests another folder. Does nothing if `difference` is ''."""
    if difference:
        raise BadInput('--workdir', f'{difference}; {give_another(folder)}', value=folder)


def difference(folder: pathlib.Path, settings: Settings, digests: Mapping[str, str]) -> str:
    """Describes the first input that differs from a run's record. Returns '' if none differs or nothing was trained.

    Args:
        folder: The folder of the run.
        settings: The settings that name the inputs.
        digests: The digests of the inputs to compare, by key. The digest '' stands for a missing file. Such a file is
            not compared, because the folder of the run contains a copy.

    Raises:
        BadInput: The record is damaged.
    """
    if not has_trained(folder):
        return ''
    catalog.check_files(folder)
    record, values = read_record(folder), config_lib.to_flat(settings)
    recorded = {**record['code'], TEXT: record.get('sha256'), TEACHER: record.get('teacher')}
    recorded |= {
        key: sha256(str(folder / key), folder / key) for key in config_lib.user_files(settings) if key in digests
    }
    for key, now in digests.items():
        then = recorded.get(key, now)
        if now in ('', then):
            continue
        if key == TEXT:
            return 'was started on a different text'
        change = f'has changed since the run was started (its SHA-256 was {str(then)[:12]}, now {now[:12]})'
        if key not in config_lib.CHOOSERS or plugins.is_file(values[key]):
            return f'{key}={values[key]!r} {change}'
        module = plugins.module_of(values[key])
        return f'{key}={values[key]!r}: the module {module} {change}; restore it to continue this run'
    return ''


def read_record(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the content of corpus.json, the record of the run's text. Raises BadInput if it is damaged."""
    record = read_json(folder / CORPUS)
    code = record.setdefault('code', {})
    require(isinstance(code, dict), str(folder / CORPUS), ..., 'the file is damaged: `code` must map keys to digests')
    return record


def check_inputs(settings: Settings, digests: Mapping[str, str]) -> None:
    """Compares the inputs of all processes of a run. Every process must call this function.

    Args:
        settings: The settings, which are the same in all processes.
        digests: The digests of the inputs of this process, by key.

    Raises:
        BadInput: This process and the first process read different texts or files.
    """
    for key, (here, there) in multihost.differences_from_primary(digests).items():
        if key == TEXT:
            raise BadInput(
                '--distributed',
                'the text differs from the text of the first process; all processes need the same corpus',
            )
        digest_pair = f'sha256 {here[:12] or "missing"}, not {there[:12] or "missing"}'
        path = config_lib.to_flat(settings)[key]
        raise BadInput('--distributed', f'{key}={path!r} differs from the file of the first process ({digest_pair})')
