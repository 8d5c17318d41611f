"""The config.json of a run: every key, the format of the folder, and digests."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from nplm_jax.config.checked_fields import flatten
from nplm_jax.utils.errors import require

FORMAT = 3  # version of the layout of a run's folder, recorded in its config.json
DIGESTS, _OWN = 'sha256', 'config.json'  # the key of the digests of files in a config.json, its own among them
_NAMES = 'name', 'corpus.name', 'corpus.tokens', 'model.family'  # what lists show of a run
KEYS_OF_MACHINE = ('corpus.path', 'corpus.valid_path', 'corpus.test_path')  # may differ between machines


def to_record(config: Mapping[str, Any], digests: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns what the config.json of a run's folder holds: every key, the format of the folder, and digests.

    Args:
        config: The values, nested by section.
        digests: The SHA-256 of other files of the folder by name.
    """
    record = {'format': FORMAT, **config}
    return {**record, DIGESTS: {**(digests or {}), _OWN: _digest(flatten(record))}}


def _digest(flat: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of a record without the keys on which no result depends."""
    kept = {key: value for key, value in flat.items() if key not in KEYS_OF_MACHINE and not key.startswith('parallel.')}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def read_values(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values in a config.json by flattened key. Builds no component.

    Raises:
        BadInput: The folder has another format, or its digest is wrong.
    """
    flat = flatten({key: value for key, value in record.items() if key != DIGESTS})
    own = digests_of(record).get(_OWN)
    found = flat.get('format')
    require(found == FORMAT, 'format', found, f'must be {FORMAT}, the only format that this version reads')
    require(own == _digest(flat), DIGESTS, own, 'is not that of the other keys; they are damaged or were edited')
    del flat['format']
    for key in _NAMES:
        is_text = isinstance(flat.get(key), str) and flat[key].isprintable()
        require(is_text, key, flat.get(key), 'must be a printable string')
    return flat


def digests_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Returns the digests in a config.json by the names of the files. Raises: BadInput."""
    digests = record.get(DIGESTS, {})
    is_right = isinstance(digests, dict) and all(isinstance(x, str) and '/' not in name for name, x in digests.items())
    require(is_right, DIGESTS, digests, 'must have a SHA-256 for each name of a file')
    return digests
