"""Functions that download and read BLiMP's minimal pairs.

References:
    Warstadt et al., BLiMP: the benchmark of linguistic minimal pairs for English, TACL 8, 2020.
"""

from __future__ import annotations

import io
import json
import pathlib
import urllib.request
import zipfile
from collections.abc import Collection, Sequence
from typing import NamedTuple

from nplm_jax.apps.psycholinguistics import minimal_pairs
from nplm_jax.apps.psycholinguistics.stimuli import Stimuli
from nplm_jax.data import download
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import cache_folder, expand
from nplm_jax.utils.untrusted import read_bytes

COMMIT = '3e56b06fcabca9b30822fc66435fca6b1aa40bb1'
URL = f'https://raw.githubusercontent.com/alexwarstadt/blimp/{COMMIT}/BLiMP.zip'
NUM_BYTES = 2_354_164
SHA256 = '172a1a714d72e72a89e8384dd531483f3d0f8a9aee3d33dccaf7992d8cecbb73'
LICENCE = 'BLiMP (Warstadt et al., 2020) is distributed under CC BY 4.0.'
SHARED = pathlib.Path('../shared/data/blimp.zip')  # used if it exists
_FIELDS = ('sentence_good', 'sentence_bad', 'UID', 'linguistics_term', 'field')


class Pair(NamedTuple):
    """An acceptable sentence and a minimally different unacceptable sentence."""

    good: str
    bad: str
    paradigm: str
    phenomenon: str
    field: str


def load(path: str = '') -> list[Pair]:
    """Returns the pairs in a file. Without a path, the pairs come from SHARED, the cache or a download."""
    if path:
        file = expand('--data', path)
        return parse(read_bytes(str(file), file), str(file))
    cached = cache_folder() / 'blimp.zip'
    for file in (SHARED, cached):
        if file.is_file():
            return parse(_verify(read_bytes(str(file), file), str(file)), str(file))
    problem = f'BLiMP cannot be downloaded; download {URL} yourself and set --data to its path'
    data = download.try_sources('BLiMP', LICENCE, NUM_BYTES, {'GitHub': _fetch}, '--data', problem)
    download.write_cache(cached, data)
    return parse(data, str(cached))


def _fetch() -> bytes:
    with urllib.request.urlopen(URL, timeout=60) as response:
        return _verify(response.read(), URL)


def _verify(data: bytes, origin: str) -> bytes:
    return download.verify(data, SHA256, origin, 'BLiMP.zip')


def parse(data: bytes, name: str) -> list[Pair]:
    """Returns the pairs in a zip file, whose folder data/ has one .jsonl file per paradigm.

    Args:
        data: The bytes of the zip.
        name: The key in error messages.

    Raises:
        BadInput: The file is not a zip file or has no .jsonl files, or a line is not a pair.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        files = {n: archive.read(n) for n in sorted(archive.namelist()) if n.startswith('data/') and n[-6:] == '.jsonl'}
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError) as error:
        raise BadInput(name, f'is not a readable zip file ({error})') from None
    if not files:
        raise BadInput(name, 'contains no data/*.jsonl files; must be BLiMP.zip')
    pairs = []
    for file, content in files.items():
        for number, line in enumerate(content.decode(errors='replace').splitlines(), start=1):
            pairs.append(_parse_line(line, f'{name}: {file}, line {number}'))
    require(len(pairs) > 0, 'pairs', 0, f'{name} contains no pairs')
    return pairs


def _parse_line(line: str, place: str) -> Pair:
    try:
        entry = json.loads(line)
    except ValueError:
        raise BadInput(place, 'must be valid JSON') from None
    is_entry = isinstance(entry, dict)
    missing = [f for f in _FIELDS if not is_entry or not isinstance(entry.get(f), str) or not entry[f].strip()]
    if missing:
        raise BadInput(place, f'must contain the non-empty strings {", ".join(missing)}')
    pair = Pair(*(entry[field] for field in _FIELDS))
    return pair._replace(field=pair.field.replace('_', '/'))  # BLiMP spells syntax_semantics in two ways


def to_stimuli(pairs: Sequence[Pair]) -> Stimuli:
    """Returns the sentences for `minimal_pairs.encode`. Raises BadInput if a sentence is empty."""
    return minimal_pairs.to_stimuli([(pair.good, pair.bad) for pair in pairs], lambda row: pairs[row].paradigm)


def phenomena(pairs: Collection[Pair]) -> dict[str, list[str]]:
    """Returns the phenomenon and the field of each paradigm."""
    return {pair.paradigm: [pair.phenomenon, pair.field] for pair in pairs}
