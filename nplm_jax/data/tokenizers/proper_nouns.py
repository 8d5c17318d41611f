"""Finds the proper nouns of a text by its capital letters (the paper, section 4, maps them to one symbol)."""

import collections
import re
from collections.abc import Iterable
from typing import NamedTuple

from nplm_jax.utils.errors import BadInput

MIN_CAPITALISED_SHARE = 0.95  # of a proper noun's occurrences

_PRONOUN = re.compile(r"I(?:['’]\w+)?", re.IGNORECASE)
_SENTENCE_OPENERS = '.!?:;"“”\'‘’`([-–—*='  # the word after one of these may begin a sentence


class CapitalCounts(NamedTuple):
    """How often a text writes each word, in lower case, with and without a capital; see `find_proper_nouns`.

    Attributes:
        capital: Occurrences with a capital inside a sentence.
        lower: Occurrences without a capital.
        has_capitals: Whether any word has a capital.
    """

    capital: collections.Counter[str]
    lower: collections.Counter[str]
    has_capitals: bool


def count_capitals(paragraphs: Iterable[Iterable[str]], begins_paragraph: bool = True) -> CapitalCounts:
    """Counts what `find_proper_nouns` needs.

    Args:
        paragraphs: Paragraphs of words in their original case.
        begins_paragraph: Whether the first paragraph is a whole one, and not the rest of one.
    """
    capital: collections.Counter[str] = collections.Counter()
    lower: collections.Counter[str] = collections.Counter()
    has_capitals = False
    for number, paragraph in enumerate(paragraphs):
        previous = '.' if number or begins_paragraph else 'a'
        for word in paragraph:
            if word[:1].isupper():
                has_capitals = True
                if previous[-1:] not in _SENTENCE_OPENERS and not _PRONOUN.fullmatch(word):
                    capital[word.lower()] += 1
            elif word[:1].islower():
                lower[word] += 1
            previous = word
    return CapitalCounts(capital, lower, has_capitals)


def find_proper_nouns(counts: Iterable[CapitalCounts]) -> tuple[str, ...]:
    """Finds the types that a text nearly always capitalises inside sentences.

    A type is a proper noun if it has a capital inside a sentence at least once, and if such occurrences are at least
    95% of these and its occurrences in lower case together. A word that opens a paragraph or follows one of . ! ? : ;
    a quotation mark, a bracket, a dash or a = may have its capital because it begins a sentence and is not counted; so
    a name that only follows "Mr." is missed. The pronoun I is not a proper noun.

    Deviation: the paper (section 4) maps proper nouns to a symbol and does not say how it found them. This rule needs
    no tagger; it takes Monday, American, Mr and B52 for proper nouns too.

    Args:
        counts: The counts of the pieces of a text.

    Returns:
        The proper nouns in lower case.

    Raises:
        BadInput: No word has a capital.
    """
    capital: collections.Counter[str] = collections.Counter()
    lower: collections.Counter[str] = collections.Counter()
    has_capitals = False
    for piece in counts:
        capital.update(piece.capital)
        lower.update(piece.lower)
        has_capitals |= piece.has_capitals
    if not has_capitals:
        raise BadInput('corpus.proper_nouns=True: this text has no capital letter, by which proper nouns are found')
    return tuple(w for w, c in capital.items() if c >= MIN_CAPITALISED_SHARE * (c + lower[w]))
