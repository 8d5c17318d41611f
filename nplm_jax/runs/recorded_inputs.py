"""What a run is made from beside its config: its text, and the user's files that its model is made from.

The run's folder records digests of the text and a copy of each file of the model, named after the config's key. They
are compared when the run is started or its text is read again, and between the processes of a run.
"""

import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from nplm_jax import config as config_lib
from nplm_jax.config import Settings
from nplm_jax.data import corpora, vocabulary
from nplm_jax.data.dataset import Dataset
from nplm_jax.distributed import multihost
from nplm_jax.models.registry import model_files
from nplm_jax.runs.catalog import CONFIG, CORPUS, VOCABULARY
from nplm_jax.runs.workdir import give_another
from nplm_jax.utils import mapped_arrays
from nplm_jax.utils.checked_fields import flatten
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import expand, read_bytes, read_json, sha256, write_atomically

_KEYS_OF_MACHINE = ('corpus.path', 'corpus.valid_path', 'corpus.test_path')  # may differ between processes of a run


def text_files(settings: Settings) -> dict[str, str]:
    """Returns the SHA-256 of each file of the user's text by path. Raises BadInput if one is missing or unreadable."""
    return {str(file): sha256(str(file), file) for file in corpora.files(settings.corpus)}


def model_digests(settings: Settings) -> dict[str, str]:
    """Returns the SHA-256 of each file that the model is made from by config key; '' for a missing file."""
    files = {key: expand(key, path) for key, path in model_files(settings).items()}
    return {key: sha256(f'{key}={str(file)!r}', file) if file.is_file() else '' for key, file in files.items()}


def record_inputs(
    folder: pathlib.Path,
    settings: Settings,
    data: Dataset,
    files: Mapping[str, str] | None = None,
    digests: Mapping[str, str] | None = None,
) -> None:
    """Records config, text, vocabulary and model files in the folder of a run, or compares them with the recorded ones.

    Args:
        folder: The folder of the run.
        settings: The settings of the run.
        data: The text of the run.
        files: What `text_files` returned before the text was read; None for a text that was not read from files.
        digests: What `model_digests` returned before the model was made; None takes the files as they are now.

    Raises:
        BadInput: The run was started on another text or with other files, or the folder cannot be written.
    """
    digests = model_digests(settings) if digests is None else digests
    try:
        if (folder / CONFIG).exists():
            refuse_changes(folder, difference_of_text(folder, data) or difference_of_model(folder, settings, digests))
            return
        for key, path in model_files(settings).items():
            content = read_bytes(f'{key}={path!r}', expand(key, path))
            if hashlib.sha256(content).hexdigest() != digests[key]:
                raise BadInput(f'{key}={path!r}: changed while it was read; run again')
            write_atomically(folder / key, content)
        write_atomically(folder / CORPUS, json.dumps({**_facts(data), 'files': files}, indent=2) + '\n')
        vocabulary.save(data.vocabulary, folder / VOCABULARY)
        write_atomically(folder / CONFIG, json.dumps(config_lib.to_record(settings), indent=2) + '\n')
    except OSError as error:
        raise BadInput(f'--workdir={folder}: cannot be written ({error.strerror})') from None


def refuse_changes(folder: pathlib.Path, difference: str) -> None:
    """Raises BadInput that advises another folder, unless the difference is empty."""
    if difference:
        raise BadInput(f'--workdir={folder}: {difference}; {give_another(folder)}')


def difference_of_text(folder: pathlib.Path, data: Dataset) -> str:
    """Returns how a text differs from the one of a run; '' if it is the same. Raises BadInput for a damaged record."""
    facts, recorded = _facts(data), _read_record(folder)
    return '' if facts == {key: recorded.get(key) for key in facts} else 'was started on a different text'


def has_text_files(folder: pathlib.Path, files: Mapping[str, str] | None) -> bool:
    """Returns whether a run's text was read from files of these digests. Raises BadInput for a damaged record."""
    return files is not None and _read_record(folder).get('files') == files


def difference_of_model(folder: pathlib.Path, settings: Settings, digests: Mapping[str, str]) -> str:
    """Returns which file differs from the run's copy; '' if none does. A missing file does not: the copy is there."""
    for key, path in model_files(settings).items():
        recorded, now = sha256(str(folder / key), folder / key), digests[key]
        if now not in ('', recorded):
            return f'{key}={path!r} has changed since the run was started (sha256 {recorded[:12]} then, {now[:12]} now)'
    return ''


def recorded_text(folder: pathlib.Path) -> str:
    """Returns the recorded SHA-256 of words, vocabulary and splits. Raises BadInput for a damaged record."""
    return str(_read_record(folder).get('sha256'))


def _read_record(folder: pathlib.Path) -> dict[str, Any]:
    try:
        return read_json(folder / CORPUS)
    except BadInput as error:
        raise BadInput(f'{error}; delete the folder or give another --workdir') from None


def _facts(data: Dataset) -> dict[str, Any]:
    """Returns what corpus.json says of a text: the size of each split, and the SHA-256 of words, vocabulary, splits."""
    digest = hashlib.sha256()
    for part_L in mapped_arrays.parts(data.tokens_T):
        digest.update(part_L.data)
    digest.update(repr((data.vocabulary.words, data.splits)).encode())
    return {'words': {k: len(s) for k, s in data.splits.items()}, 'sha256': digest.hexdigest()}


def check_config(settings: Settings) -> None:
    """Compares the settings of all processes of a run; every process calls this.

    The paths of a text may differ from machine to machine: `check_inputs` compares the texts.

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
            f'--distributed: the config of this process differs from that of the first ({differences}); '
            'give all processes the same'
        )


def check_inputs(settings: Settings, data: Dataset, digests: Mapping[str, str]) -> None:
    """Compares the texts and the files of the models of all processes of a run; every process calls this.

    Args:
        settings: The settings, which are those of all processes.
        data: The text of this process.
        digests: What `model_digests` returns in this process.

    Raises:
        BadInput: This process reads another text or another file than the first one.
    """
    if jax.process_count() == 1:
        return
    if (text := _facts(data)['sha256']) != _digest_of_primary(text):
        raise BadInput(
            '--distributed: this process reads a different text from the first; give all processes the same corpus'
        )
    for key, path in model_files(settings).items():
        if (here := digests[key]) != (there := _digest_of_primary(here)):
            digest_pair = f'sha256 {here[:12] or "missing"} here, {there[:12] or "missing"} there'
            raise BadInput(f'--distributed: {key}={path!r}: differs from the file of the first process ({digest_pair})')


def _digest_of_primary(digest: str) -> str:
    padded = np.frombuffer(digest.ljust(64).encode(), np.uint8)
    return multihost.broadcast_from_primary(padded).tobytes().decode().strip()
