"""Damages valid files with one to four edits that a disk, a kill, an editor or a stranger could make."""

from __future__ import annotations

import copy
import json
import pathlib
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

WORDS = [
    *(b'\0', b'\n', b'\r\n', b'\t', b' ', b'\x1c', b'\xff', b'\xed\xa0\x80', b'\xef\xbb\xbf', b'\xc2\x85'),
    *(b'-1', b'1e999', b'-1e999', b'nan', b'NaN', b'Infinity', b'-Infinity', b'null', b'true', b'1.5', b'00', b'1_0'),
    *(b'9' * 19, b'9' * 400, b'9' * 5000, b'\xd9\xa3', b'a' * 5000, b'[' * 2000, b'{"a":' * 2000, b'"\\ud800"', b'{}'),
    *(b'<rare>', b'<unk>', b'<s>', b'\\end\\', b'\\1-grams:', b'ngram 3=1', b'../../x', b'/etc/passwd', b'\n\n'),
    *(('a' + '\u0301\u0327' * 40).encode(), 'é'.encode() * 70, '\u2028'.encode(), b"'s", b' ||| ', b'= = '),
]  # fmt: skip
VALUES = [
    *(None, True, False, 0, -1, 2, 1.5, -1e308, 1e-320, float('nan'), float('inf'), 10**30, 2**31, 2**62, [], {}, [[]]),
    *('', 'x', '\0', '\ud800', 'x' * 3000, '../x', 'nan', 'lstm', 'text', 'abc', '\n', '\u0663', {'a': 1}, ['valid']),
]  # fmt: skip


class Reader(NamedTuple):
    """A reader to be tested with damaged files.

    Attributes:
        valid: The contents of valid files.
        read: A function of a working folder and the bytes of a file. It raises AssertionError if a result changes when
            it is written and read again.
        cases: The number of cases by default, and with `-m ''`.
    """

    name: str
    valid: Sequence[bytes]
    read: Callable[[pathlib.Path, bytes], Any]
    cases: tuple[int, int] = (100, 10_000)
    is_json: bool = False


def damaged(rng: random.Random, reader: Reader) -> bytes:
    """Returns one of the reader's valid files after some edits."""
    data = rng.choice(reader.valid)
    if reader.is_json and rng.random() < 0.5:
        return damaged_json(rng, data)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 4])):
        data = edited(rng, data)
    return data


def edited(rng: random.Random, data: bytes) -> bytes:
    kind = rng.choice(['flip', 'insert', 'replace', 'delete', 'repeat', 'move', 'cut', 'line'])
    if kind == 'line':  # or the text between two line ends
        parts = data.split(b'\n')
        place = rng.randrange(len(parts))
        parts[place : place + rng.randint(0, 1)] = [rng.choice(parts)] * rng.choice([0, 1, 1, 2, 50])
        return b'\n'.join(parts)
    start = rng.randint(0, len(data))
    stop = min(len(data), start + rng.choice([1, 1, 2, 3, 8, 40, 400]))
    before, middle, after = data[:start], data[start:stop], data[stop:]
    if kind == 'flip':
        middle = bytes([b ^ rng.randint(1, 255) for b in middle[:1]]) + middle[1:]
    elif kind == 'repeat':
        middle = middle * rng.choice([2, 3, 100])
    elif kind == 'move':
        to = rng.randint(0, start)
        before, middle = before[:to] + middle, before[to:]
    elif kind == 'cut':
        middle = after = b''
    else:
        put = b'' if kind == 'delete' else rng.choice([*WORDS, rng.randbytes(rng.randint(1, 4))])
        middle = put + (middle if kind == 'insert' else b'')
    return before + middle + after


def damaged_json(rng: random.Random, data: bytes) -> bytes:
    """Replaces values or keys of a JSON file."""
    lines = data.decode().splitlines() if data.count(b'}\n{') else [data.decode()]
    i = rng.randrange(len(lines))
    value = json.loads(lines[i])
    for _ in range(rng.choice([1, 1, 2, 3])):
        holder, key = rng.choice([(None, None), *_places(value)])
        what = copy.deepcopy(rng.choice(VALUES))
        if holder is None:
            value = what
        elif rng.randint(0, 3):
            holder[key] = what
        elif isinstance(holder, dict):
            holder[rng.choice(['', 'x', '\ud800', 'name', 'n\n'])] = holder.pop(key)
        else:
            del holder[key]
    lines[i] = json.dumps(value)
    return '\n'.join(lines).encode() + b'\n'


def _places(value: Any) -> list[tuple[Any, Any]]:
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((value, key), *_places(value[key]))]
