"""Reads the keys, defaults and comments of configs/default.py. Imports no Sphinx, so that the tests can use it."""

from __future__ import annotations

import pathlib
import re
from typing import NamedTuple

DEFAULT = pathlib.Path(__file__).parents[2] / 'configs' / 'default.py'
_SECTION = re.compile(r'def _(\w+)\(\)')
_SUMMARY = re.compile(r' +"""Returns `[\w.*]+`: (.*)"""')
_COMMENT = re.compile(r' +# (.*)')
_KEY = re.compile(r' +c\.([\w.]+) = (.+?)(?:  # (.*))?')


class Key(NamedTuple):
    """One key of the config.

    Attributes:
        name: The flattened key, such as model.h.
        default: Its value in configs/default.py, as Python.
        meaning: Its comment there: the lines above it, and what stands behind it.
    """

    name: str
    default: str
    meaning: str


def sections(path: pathlib.Path = DEFAULT) -> dict[str, list[Key]]:
    """Returns the keys by the summary of their section, in the order of the file; '' has those outside a section."""
    found: dict[str, list[Key]] = {'': []}
    prefix, summary, comments = '', '', []
    for line in path.read_text().splitlines():
        if match := _SECTION.match(line):
            prefix = f'{match[1]}.'
        elif prefix and (match := _SUMMARY.fullmatch(line)):
            found[summary := match[1]] = []
        elif match := _COMMENT.fullmatch(line):
            comments.append(match[1])
        elif (match := _KEY.fullmatch(line)) and not match[2].endswith('()'):
            meaning = ' '.join([*comments, match[3] or ''])
            found[summary].append(Key(f'{prefix}{match[1]}', match[2], meaning.strip()))
            comments = []
    return found
