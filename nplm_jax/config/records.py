"""Reads and writes config.json, which contains the keys of a run, the format version and digests."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from nplm_jax.config.checked_fields import flatten
from nplm_jax.utils.errors import require

FORMAT = 3  # version of the layout of a run folder
DIGESTS, _OWN = 'sha256', 'config.json'  # the key for the digests of files, and the name of this file
_NAMES = 'name', 'corpus.name', 'corpus.tokens', 'model.family'  # shown in lists of runs
KEYS_OF_MACHINE = ('corpus.path', 'corpus.valid_path', 'corpus.test_path')  # may differ by machine; not in the digest


def to_record(config: Mapping[str, Any], digests: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns the contents of a run's config.json: all keys, the format version and digests.

    Args:
        config: The values of all keys, nested by section.
        digests: The SHA-256 digests of other files in the run folder, by file name, or None for an empty dictionary.
    """
    record = {'format': FORMAT, **config}
    return {**record, DIGESTS: {**(digests or {}), _OWN: _digest(flatten(record))}}


def _digest(flat: Mapping[str, Any]) -> str:
    """Returns the SHA-256 digest of a record without the keys that do not affect results."""
    kept = {key: value for key, value in flat.items() if key not in KEYS_OF_MACHINE and not key.startswith('parallel.')}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def read_values(record: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values in a config.json by flattened key, without building components.

    Raises:
        BadInput: The record has another format version or a wrong digest.
    """
    flat = flatten({key: value for key, value in record.items() if key != DIGESTS})
    own = digests_of(record).get(_OWN)
    found = flat.get('format')
    require(found == FORMAT, 'format', found, f'must be {FORMAT}, the only format that this version supports')
    require(own == _digest(flat), DIGESTS, own, 'does not match the other keys; the file was damaged or edited')
    del flat['format']
    for key in _NAMES:
        is_text = isinstance(flat.get(key), str) and flat[key].isprintable()
        require(is_text, key, flat.get(key), 'must be a printable string')
    return flat


def digests_of(record: Mapping[str, Any]) -> dict[str, str]:
    """Returns the SHA-256 digests in a config.json, by file name. Raises BadInput if they are malformed."""
    digests = record.get(DIGESTS, {})
    is_right = isinstance(digests, dict) and all(isinstance(x, str) and '/' not in name for name, x in digests.items())
    require(is_right, DIGESTS, digests, 'must map file names to SHA-256 digests')
    return digests
