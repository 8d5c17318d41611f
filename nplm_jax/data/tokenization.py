"""Raw words to the words of a stream: marks, possessives, numbers, proper nouns, case (the paper, section 4)."""

from __future__ import annotations

import collections
import dataclasses
import re
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import regex

from nplm_jax.config import CorpusSettings
from nplm_jax.utils.errors import BadInput, require

TEXT_MARK = '<text>'  # before each text of a corpus
PARAGRAPH_MARK = '<p>'  # before each paragraph
RARE = '<rare>'  # all words that are not in the vocabulary
NUMBER = '<number>'  # all numeric forms, under corpus.numbers
PROPER = '<proper>'  # all proper nouns, under corpus.proper_nouns

Paragraph = list[str]  # of raw words

PROPER_SHARE = 0.95  # a proper noun has a capital in this share of its occurrences or more
# A word may hold hyphens, apostrophes, points and commas; combining marks (\p{M}) belong to their letters.
# Python's blanks are more than \s: a separator of old, \x1c to \x1f, is one as well.
_WORD = regex.compile(r"<[a-z]+>|[\w\p{M}]+(?:[-'’.,][\w\p{M}]+)*|[^\w\s\x1c-\x1f]")
_MANY_MARKS = regex.compile(r'\p{M}{64}(?=\p{M})')
_JOINER = '\u034f'
_POSSESSIVE = ("'s", "'S", '’s', '’S')
_NUMBER = re.compile(r'[-+$£€]?\.?\d+(?:[-.,:/]\d+)*(?:st|nd|rd|th|s)?%?', re.IGNORECASE)
_BLANK_LINES = re.compile(r'\n\s*\n')
_PRONOUN = re.compile(r"I(?:['’]\w+)?", re.IGNORECASE)
_BEFORE_A_SENTENCE = '.!?:;"“”\'‘’`([-–—*='  # a word after one of these may have its capital from its place


def paragraphs(text: str, kind: str) -> list[Paragraph]:
    """Cuts a text at blank lines, and each paragraph into words.

    kind: `words` splits punctuation off (3.14, well-known and a <symbol> stay whole), `whitespace` at blanks only.
    """
    find: Callable[[str], list[str]] = str.split if kind == 'whitespace' else _WORD.findall
    # To put many marks of one letter in order takes the square of their number: Unicode (UAX #15) parts them so.
    normal = unicodedata.normalize('NFC', _MANY_MARKS.sub(lambda marks: marks[0] + _JOINER, text))
    return [words for block in _BLANK_LINES.split(normal) if (words := find(block))]


def token_streams(
    parts: Sequence[Sequence[str]], cut: Callable[[str], list[Paragraph]], settings: CorpusSettings
) -> list[list[str]]:
    """The words of each part of a corpus; a part is a list of texts, which `cut` makes paragraphs.

    Proper nouns are looked for over all parts together. Raises: BadInput when they are and no word has a capital.
    """
    proper: Collection[str] = ()
    if settings.proper_nouns:
        proper = proper_nouns(
            list(_split_possessives(p)) if settings.split_possessive else p
            for texts in parts
            for text in texts
            for p in cut(text)
        )
    return [tokenize(map(cut, texts), settings, proper) for texts in parts]


def tokenize(texts: Iterable[list[Paragraph]], settings: CorpusSettings, proper: Collection[str] = ()) -> list[str]:
    """Applies the `corpus.*` choices to texts given as lists of paragraphs, each a list of raw words.

    The two marks are separate words, so a text opens with both. With the default settings Brown becomes
    1,183,224 words of 48,132 types (the paper, section 4: 1,181,041 and 47,578).
    proper: what `proper_nouns` found; their capitalised occurrences become <proper>, a word each.
    """
    stream: list[str] = []
    for text in texts:
        if settings.boundary_tokens:
            stream.append(TEXT_MARK)
        for paragraph in text:
            if settings.boundary_tokens:
                stream.append(PARAGRAPH_MARK)
            words: Iterable[str] = _split_possessives(paragraph) if settings.split_possessive else paragraph
            if settings.numbers:
                words = (NUMBER if is_number(w) else w for w in words)
            if proper:
                words = (PROPER if w[:1].isupper() and w.lower() in proper else w for w in words)
            if settings.lowercase:
                words = (w.lower() for w in words)
            stream.extend(map(sys.intern, words))  # one string a type, not one a word
    return stream


def tokenize_prompt(text: str, settings: CorpusSettings, known: Collection[str], kind: str = '') -> list[str]:
    """The words of a text that a user gives to a trained model, made as those of its corpus were; no marks are added.

    Brown, WikiText-2 and `sentences` come with their words parted by blanks, and so is the text expected then.
    Under corpus.proper_nouns a capitalised word that is not known in either case is <proper>: a run does not keep
    which words its corpus had for proper nouns.
    known: the words of the vocabulary. kind: `words` or `whitespace` instead of the corpus' own way.
    """
    kind = kind or (settings.tokens if settings.name in ('text', 'ap_news') else 'whitespace')
    cut = paragraphs(text, kind)
    proper: Collection[str] = ()
    if settings.proper_nouns:
        words = {w for p in cut for w in (_split_possessives(p) if settings.split_possessive else p)}
        proper = {w.lower() for w in words if w not in known and w.lower() not in known}
    return tokenize([cut], dataclasses.replace(settings, boundary_tokens=False), proper)


def is_number(word: str) -> bool:
    """Whether a word is a numeric form: 7, 1,995.5, -3, $5, 50%, 10-12, 9:30, 1/2, 1990s, 21st; not B52 or five.

    Deviation: the paper (section 4) does not say which forms it took for numeric.
    """
    return _NUMBER.fullmatch(word) is not None


def proper_nouns(raw: Iterable[Paragraph]) -> frozenset[str]:
    """The types, in lower case, that a text nearly always writes with a capital in the midst of a sentence.

    A type is a proper noun when at least once it has a capital in the midst of a sentence, and such occurrences
    are 95% or more of themselves and of those in lower case together. A word that opens a paragraph or follows
    one of . ! ? : ; a quotation mark, a bracket, a dash or a = may have its capital from its place and says nothing; so
    a name that only follows "Mr." is missed. The pronoun I is none.
    Deviation: the paper (section 4) maps proper nouns to a symbol and does not say how it found them. This rule
    needs no tagger; it takes Monday, American, Mr and B52 for proper nouns too.
    raw: paragraphs of words as printed. Raises: BadInput when no word of them has a capital.
    """
    capital: collections.Counter[str] = collections.Counter()
    lower: collections.Counter[str] = collections.Counter()
    cased = False
    for paragraph in raw:
        before = '.'
        for word in paragraph:
            if word[:1].isupper():
                cased = True
                if before[-1:] not in _BEFORE_A_SENTENCE and not _PRONOUN.fullmatch(word):
                    capital[word.lower()] += 1
            elif word[:1].islower():
                lower[word] += 1
            before = word
    if not cased:
        raise BadInput('corpus.proper_nouns=True: this text has no capital letter, by which proper nouns are found')
    return frozenset(w for w, c in capital.items() if c >= PROPER_SHARE * (c + lower[w]))


def require_words(key: str, value: Any, words: list[str]) -> None:
    """Raises BadInput unless two different words or more stand beside the marks."""
    kinds = len(set(words) - {TEXT_MARK, PARAGRAPH_MARK})
    require(kinds > 0, key, value, 'holds no words')
    require(kinds > 1, key, value, 'holds one word only; two different words or more are needed')


def _split_possessives(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        if len(word) > 2 and word[-2:] in _POSSESSIVE:
            yield word[:-2]
            yield word[-2:]
        else:
            yield word
