"""Chooses the names of run folders."""

import hashlib
import os
import pathlib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

_MAX_IN_NAME = 40  # maximum characters per value in a folder name


def safe_folder_name(name: str) -> str:
    """Converts a name to a folder name that contains only ASCII letters, digits, dots, hyphens and underscores.

    If any characters are replaced, a digest of the original name is appended. Different names therefore remain
    different.

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
    """Returns the default name of a run folder: the config name and the overridden keys, such as `brown-mlp9__h_50`.

    If the corpus is a user's file, its name replaces `text` in the config name. For example, the name is `novel__h_50`
    for corpus.path=/home/me/novel.txt.

    Args:
        config: The config of the run.
        overrides: The values set on the command line, by flattened key.
        minutes: The value of `--minutes`, or None.
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
    """Formats overridden keys and values as part of a folder name, such as `h_50__seed_2`.

    Keys are shortened to the part after their last dot, unless two keys share this part. Paths are shortened to their
    last component.

    Args:
        overrides: The overridden values, by flattened key.
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
    """Returns the `run_name` of each sweep point. Appends a digest to names that different points would share."""
    names = [run_name(overrides) for overrides in all_overrides]
    digests = [_short_digest(repr(sorted(overrides.items()))) for overrides in all_overrides]
    alike: dict[str, set[str]] = {}
    for name, digest in zip(names, digests):
        alike.setdefault(name, set()).add(digest)
    return [f'{name}-{digest}' if len(alike[name]) > 1 else name for name, digest in zip(names, digests)]
