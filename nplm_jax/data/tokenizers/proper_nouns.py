"""Proper-noun detection by capitalization. The paper maps proper nouns to one symbol (section 4)."""

import collections
import re
from collections.abc import Iterable

from nplm_jax.data.tokenizers.tokenizer import lower
from nplm_jax.utils.errors import BadInput

INSIDE, OPENING, LOWER = 'inside', 'opening', 'lower'  # with a capital inside a sentence, at its beginning; without
MIN_CAPITALISED_SHARE = 0.95  # of a proper noun's occurrences

_PRONOUN = re.compile(r"I(?:['’]\w+)?", re.IGNORECASE)
_SENTENCE_OPENERS = '.!?:;"“”\'‘’`([-–—*='  # the word after one of these may begin a sentence

# How often each word, in lower case, is written in each way: INSIDE, OPENING or LOWER.
Counts = collections.Counter[tuple[str, str]]


def count_capitals(paragraphs: Iterable[Iterable[str]], begins_paragraph: bool = True) -> Counts:
    """Counts how often a text writes each word with and without a capital; see `find_proper_nouns`.

    Args:
        paragraphs: Paragraphs of words in their original case.
        begins_paragraph: Whether the first paragraph is a whole one, and not the rest of one.
    """
    counts: Counts = collections.Counter()
    for number, paragraph in enumerate(paragraphs):
        previous = '.' if number or begins_paragraph else 'a'
        for word in paragraph:
            if word[:1].isupper():
                may_open = previous[-1:] in _SENTENCE_OPENERS or _PRONOUN.fullmatch(word)
                counts[lower(word), OPENING if may_open else INSIDE] += 1
            elif word[:1].islower():
                counts[word, LOWER] += 1
            previous = word
    return counts


def find_proper_nouns(counts: Iterable[Counts]) -> tuple[str, ...]:
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
    total: Counts = collections.Counter()
    for piece in counts:
        total.update(piece)
    if not any(place in (INSIDE, OPENING) for _, place in total):
        raise BadInput(
            'corpus.proper_nouns', 'finds proper nouns by their capital letters, and this text has none', value=True
        )
    inside = ((word, count) for (word, place), count in total.items() if place == INSIDE)
    return tuple(word for word, c in inside if c >= MIN_CAPITALISED_SHARE * (c + total[word, LOWER]))
