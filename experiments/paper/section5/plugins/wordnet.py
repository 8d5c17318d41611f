"""A reader of WordNet 3.0, from NLTK's folders, the cache or a download, with words' lemmas and synsets' links.

A synset is a set of synonyms. WordNet orders the senses of a lemma by frequency.

References:
    Fellbaum (1998), "WordNet: an electronic lexical database"; the file formats follow wndb(5WN), and the rules of
    inflection follow morphy(7WN).
"""

import collections
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from nplm_jax.data import download

POS = {'noun': 'n', 'verb': 'v', 'adj': 'a', 'adv': 'r'}  # part of speech: suffix of its files -> its letter
PACKAGE = download.Package(
    'wordnet',
    'WordNet 3.0',
    'the prior of WordNet',
    'WordNet 3.0: Copyright 2006 by Princeton University; its licence permits any use that keeps this notice.',
    tuple(name for pos in POS for name in (f'data.{pos}', f'index.{pos}', f'{pos}.exc')),
    '0c34e040c9fa234976dc78d534c968c0ffceb2acd8f3e2ba8cb678d4e0346770',
    download.NLTK_WHEEL,
    f'{download.NLTK_WHEEL_FOLDER}/wordnet',
)

_LINKS = ('@', '@i', '~', '~i', '&')  # pointers to hypernyms, hyponyms and similar adjectives
_SUFFIXES = {  # part of speech -> (suffix of inflected words, its replacement in the lemma)
    'n': (('s', ''), ('ses', 's'), ('xes', 'x'), ('zes', 'z'), ('ches', 'ch'), ('shes', 'sh'), ('men', 'man'))
    + (('ies', 'y'),),
    'v': (('s', ''), ('ies', 'y'), ('es', 'e'), ('es', ''), ('ed', 'e'), ('ed', ''), ('ing', 'e'), ('ing', '')),
    'a': (('er', ''), ('est', ''), ('er', 'e'), ('est', 'e')),
    'r': (),
}

Lemma = tuple[str, str]  # part of speech, and the word
Synset = tuple[str, str]  # part of speech, and the position in the file


class WordNet(NamedTuple):
    """The relations between words in WordNet's files.

    Attributes:
        senses: The synsets of each lemma, the most common sense first.
        links: The hypernyms, hyponyms and similar adjectives of each synset.
        irregular: The lemmas of irregularly inflected words.
    """

    senses: dict[Lemma, list[Synset]]
    links: dict[Synset, list[Synset]]
    irregular: dict[Lemma, list[str]]


def load() -> WordNet:
    """Reads WordNet from the first available source; see `download.read`.

    Raises:
        BadInput: WordNet at that source is damaged, or every download fails.
    """
    return parse({name: data.decode('utf-8') for name, data in download.read(PACKAGE).items()})


def parse(texts: Mapping[str, str]) -> WordNet:
    """Parses the texts of the files of PACKAGE, by file name."""
    senses: dict[Lemma, list[Synset]] = {}
    links: dict[Synset, list[Synset]] = {}
    irregular: dict[Lemma, list[str]] = collections.defaultdict(list)
    for name, pos in POS.items():
        for fields in _lines(texts[f'index.{name}']):
            # lemma, part of speech, number of senses, number p of pointers, p pointers, two counts, the senses
            senses[pos, fields[0]] = [(pos, offset) for offset in fields[6 + int(fields[3]) :]]
        for fields in _lines(texts[f'data.{name}']):
            # offset, lexicographer, part of speech, number w of words in hexadecimal, w pairs, number of pointers,
            # then four fields per pointer: symbol, offset, part of speech, words
            first = 5 + 2 * int(fields[3], 16)
            pointers = [fields[i : i + 3] for i in range(first, first + 4 * int(fields[first - 1]), 4)]
            links[pos, fields[0]] = [
                ('a' if kind == 's' else kind, offset) for symbol, offset, kind in pointers if symbol in _LINKS
            ]
        for inflected, *words in _lines(texts[f'{name}.exc']):
            irregular[pos, inflected].extend(words)
    return WordNet(senses, links, dict(irregular))


def _lines(text: str) -> Iterator[list[str]]:
    """Yields the fields of each line without the gloss. Skips the licence, whose lines begin with a space."""
    for line in text.splitlines():
        if line and not line.startswith(' '):
            yield line.partition(' | ')[0].split()


def lemmas(wordnet: WordNet, word: str) -> list[Lemma]:
    """Returns the lemmas of a word in lower case, which may be inflected.

    Examples:
        >>> empty = WordNet({('n', 'dog'): [], ('v', 'dog'): [], ('n', 'mouse'): []}, {}, {('n', 'mice'): ['mouse']})
        >>> lemmas(empty, 'dogs'), lemmas(empty, 'mice')
        ([('n', 'dog'), ('v', 'dog')], [('n', 'mouse')])
    """
    known_lemmas = []
    for pos, suffixes in _SUFFIXES.items():
        stems = [word, *wordnet.irregular.get((pos, word), ())]
        stems += [word[: -len(suffix)] + end for suffix, end in suffixes if word.endswith(suffix)]
        known_lemmas += [(pos, stem) for stem in dict.fromkeys(stems) if (pos, stem) in wordnet.senses]
    return known_lemmas
