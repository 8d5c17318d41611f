"""BLiMP's minimal pairs: reads or downloads them, cuts them into tokens, and tells which pairs a vocabulary covers.

References:
    Warstadt et al., BLiMP: the benchmark of linguistic minimal pairs for English, TACL 8, 2020.
"""

from __future__ import annotations

import collections
import io
import json
import pathlib
import urllib.request
import zipfile
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from nplm_jax.data import download
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import expand, read_bytes

COMMIT = '3e56b06fcabca9b30822fc66435fca6b1aa40bb1'
URL = f'https://raw.githubusercontent.com/alexwarstadt/blimp/{COMMIT}/BLiMP.zip'
NUM_BYTES = 2_354_164
SHA256 = '172a1a714d72e72a89e8384dd531483f3d0f8a9aee3d33dccaf7992d8cecbb73'
LICENCE = 'BLiMP (Warstadt et al., 2020) is distributed under CC BY 4.0.'
SHARED = pathlib.Path('../shared/data/blimp.zip')  # used where it is
SUBSETS = ('all', 'differing', 'full')
_FIELDS = ('sentence_good', 'sentence_bad', 'UID', 'linguistics_term', 'field')


class Pair(NamedTuple):
    """An acceptable sentence and one that differs from it minimally and is not acceptable."""

    good: str
    bad: str
    paradigm: str
    phenomenon: str
    field: str


class EncodedPairs(NamedTuple):
    """Pairs as a model reads them.

    Attributes:
        lines: The ids of each different sentence, int32, without marks.
        rows_Px2: The lines of the good and of the bad sentence of each pair.
        subsets: The pairs that count, a mask by each of SUBSETS: all; those whose differing words are in the
            vocabulary, which are those between the beginning and the end that both sentences share; those with all
            words in it.
    """

    lines: list[np.ndarray]
    rows_Px2: np.ndarray
    subsets: dict[str, np.ndarray]


def load(path: str = '') -> list[Pair]:
    """Returns the pairs of a file; without a path those of SHARED, of the cache or of a download."""
    if path:
        file = expand('--data', path)
        return parse(read_bytes(str(file), file), str(file))
    if SHARED.is_file():
        return parse(_verify(read_bytes(str(SHARED), SHARED), str(SHARED)), str(SHARED))
    cached = download.cache_folder() / 'blimp.zip'
    if cached.is_file():
        return parse(_verify(read_bytes(str(cached), cached), str(cached)), str(cached))
    error = f'BLiMP cannot be downloaded; fetch {URL} and give --data=PATH'
    data = download.try_sources('BLiMP', LICENCE, NUM_BYTES, {'GitHub': _fetch}, error)
    download.write_cache(cached, data)
    return parse(data, str(cached))


def _fetch() -> bytes:
    with urllib.request.urlopen(URL, timeout=60) as response:
        return _verify(response.read(), URL)


def _verify(data: bytes, origin: str) -> bytes:
    return download.verify(data, SHA256, origin, 'BLiMP.zip')


def parse(data: bytes, name: str) -> list[Pair]:
    """Returns the pairs of a zip whose folder data/ has a .jsonl file for each paradigm.

    Args:
        data: The bytes of the zip.
        name: Its name, the beginning of error messages.

    Raises:
        BadInput: It is no zip, has no such file, or a line is not a pair; the message names file and line.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        files = {n: archive.read(n) for n in sorted(archive.namelist()) if n.startswith('data/') and n[-6:] == '.jsonl'}
    except (zipfile.BadZipFile, NotImplementedError, OSError, ValueError) as error:
        raise BadInput(f'{name}: is no readable zip ({error})') from None
    if not files:
        raise BadInput(f'{name}: holds no data/*.jsonl; BLiMP.zip is expected')
    pairs = []
    for file, content in files.items():
        for number, line in enumerate(content.decode(errors='replace').splitlines(), start=1):
            pairs.append(_parse_line(line, f'{name}: {file}, line {number}'))
    require(len(pairs) > 0, 'pairs', 0, f'{name} holds none')
    return pairs


def _parse_line(line: str, place: str) -> Pair:
    try:
        entry = json.loads(line)
    except ValueError:
        raise BadInput(f'{place}: is no JSON') from None
    is_entry = isinstance(entry, dict)
    missing = [f for f in _FIELDS if not is_entry or not isinstance(entry.get(f), str) or not entry[f].strip()]
    if missing:
        raise BadInput(f'{place}: lacks {", ".join(missing)}')
    pair = Pair(*(entry[field] for field in _FIELDS))
    return pair._replace(field=pair.field.replace('_', '/'))  # BLiMP writes syntax_semantics in two ways


def encode(pairs: Sequence[Pair], vocabulary: Vocabulary) -> EncodedPairs:
    """Cuts the sentences as `nplm surprisal` does, and numbers the different ones.

    Raises:
        BadInput: A sentence has no token.
    """
    sentences = (sentence for pair in pairs for sentence in (pair.good, pair.bad))
    tokens = vocabulary.tokenizer.tokenize(sentences, vocabulary.ids)
    if (empty := next((i for i, words in enumerate(tokens) if not words), None)) is not None:
        raise BadInput(f'{pairs[empty // 2].paradigm}: the sentence {pairs[empty // 2][empty % 2]!r} has no token')
    encoded = [vocabulary.encode(words).astype(np.int32) for words in tokens]
    numbers: dict[bytes, int] = {}
    rows = [numbers.setdefault(line.tobytes(), len(numbers)) for line in encoded]
    lines = [np.frombuffer(key, np.int32) for key in numbers]
    kept = {subset: np.ones(len(pairs), bool) for subset in SUBSETS}
    for i, (good, bad) in enumerate(zip(tokens[::2], tokens[1::2])):
        kept['differing'][i] = all(word in vocabulary.ids for word in differing_words(good, bad))
        kept['full'][i] = all(word in vocabulary.ids for word in (*good, *bad))
    return EncodedPairs(lines, np.array(rows).reshape(-1, 2), kept)


def differing_words(good: Sequence[str], bad: Sequence[str]) -> list[str]:
    """Returns the words of two sentences between the beginning and the end that both share.

    Examples:
        >>> differing_words('the cats sleep .'.split(), 'the cats sleeps .'.split())
        ['sleep', 'sleeps']
        >>> differing_words('a red old cat'.split(), 'a old red cat'.split())
        ['red', 'old', 'old', 'red']
    """
    shorter = min(len(good), len(bad))
    first = next((i for i in range(shorter) if good[i] != bad[i]), shorter)
    last = next((i for i in range(shorter - first) if good[-1 - i] != bad[-1 - i]), shorter - first)
    return [*good[first : len(good) - last], *bad[first : len(bad) - last]]


def count(log_p_Px2: np.ndarray, pairs: Sequence[Pair], subset_P: np.ndarray, tie: float) -> dict[str, list[int]]:
    """Returns for each paradigm the numbers of pairs, of good sentences that are likelier, and of ties.

    Args:
        log_p_Px2: log P of the good and of the bad sentence of each pair, nats.
        pairs: The pairs.
        subset_P: The pairs that count.
        tie: The difference up to which two sentences are equally likely, nats.

    Raises:
        BadInput: A log-probability is not a number.
    """
    require(not np.isnan(log_p_Px2).any(), 'log P', 'nan', 'the model gives a sentence no probability')
    with np.errstate(invalid='ignore'):
        difference_P = log_p_Px2[:, 0] - log_p_Px2[:, 1]
    difference_P[log_p_Px2[:, 0] == log_p_Px2[:, 1]] = 0  # of two impossible sentences too
    counts: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0, 0])
    for pair, difference, is_in in zip(pairs, difference_P.tolist(), subset_P.tolist()):
        row = counts[pair.paradigm]
        row[0] += is_in
        row[1] += is_in and difference > tie
        row[2] += is_in and abs(difference) <= tie
    return {paradigm: [int(n) for n in row] for paradigm, row in counts.items()}


def phenomena(pairs: Collection[Pair]) -> dict[str, list[str]]:
    """Returns the phenomenon and the field of each paradigm."""
    return {pair.paradigm: [pair.phenomenon, pair.field] for pair in pairs}
