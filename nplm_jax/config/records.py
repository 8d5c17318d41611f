"""The config.json of a run: every key, the format of the folder, and digests."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from nplm_jax.config import parts
from nplm_jax.config.checked_fields import build, flatten
from nplm_jax.config.registry import PARTS
from nplm_jax.config.settings import Settings, option_classes, plugin_modules, value_of
from nplm_jax.utils.errors import BadInput, require

FORMAT = 2  # version of the layout of a run's folder, recorded in its config.json
DIGESTS, _OWN = 'sha256', 'config.json'  # the key of the digests of files in a config.json, its own among them
KEYS_OF_MACHINE = ('corpus.path', 'corpus.valid_path', 'corpus.test_path')  # may differ between machines


def to_record(settings: Settings, digests: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns what the config.json of a run's folder holds: every key, the format of the folder, and digests.

    Args:
        settings: The settings.
        digests: The SHA-256 of other files of the folder by name.
    """
    record = {'format': FORMAT, **parts.to_config(settings).to_dict()}
    return {**record, DIGESTS: {**(digests or {}), _OWN: _digest(flatten(record))}}


def _digest(flat: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of a record without the keys on which no result depends."""
    kept = {key: value for key, value in flat.items() if key not in KEYS_OF_MACHINE and not key.startswith('parallel.')}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def from_record(record: Mapping[str, Any]) -> Settings:
    """Returns the settings that a config.json holds. Imports no plug-in: their options are dictionaries; see `replace`.

    Raises:
        BadInput: The folder has another format, its digest is wrong, or a key is missing, unknown, of another component
            or has an impossible value.
    """
    flat = flatten({key: value for key, value in record.items() if key != DIGESTS})
    own = digests_of(record).get(_OWN, digest := _digest(flat))
    found = flat.pop('format', None)
    require(found == FORMAT, 'format', found, f'must be {FORMAT}, the only format that this version reads')
    require(own == digest, DIGESTS, own, 'is not that of the other keys; they are damaged or were edited')
    settings = build(Settings, flat, option_classes(flat, imports=False))
    keys = parts.keys_of(settings, imports=False)
    if missing := min(keys - flat.keys(), default=''):
        raise BadInput(missing, 'missing')
    is_known = all(value_of(settings, key) in kind.paths for key, kind in PARTS.items())
    if is_known and not plugin_modules(settings) and (unread := min(flat.keys() - keys, default='')):
        raise BadInput(unread, 'not a key of this run', value=flat[unread])
    return settings


def digests_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Returns the digests in a config.json by the names of the files. Raises: BadInput."""
    digests = record.get(DIGESTS, {})
    is_right = isinstance(digests, dict) and all(isinstance(x, str) and '/' not in name for name, x in digests.items())
    require(is_right, DIGESTS, digests, 'must have a SHA-256 for each name of a file')
    return digests
