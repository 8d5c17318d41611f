"""Detects proper nouns by their capital letters. The paper maps proper nouns to one symbol (section 4)."""

import collections
import re
from collections.abc import Iterable

from nplm_jax.data.tokenizers.tokenizer import lower
from nplm_jax.utils.errors import BadInput

INSIDE, OPENING, LOWER = 'inside', 'opening', 'lower'  # capitalized inside or at the start of a sentence; lower case
MIN_CAPITALISED_SHARE = 0.95  # minimum share of a proper noun's occurrences

_PRONOUN = re.compile(r"I(?:['’]\w+)?", re.IGNORECASE)
_SENTENCE_OPENERS = '.!?:;"“”\'‘’`([-–—*='  # the word after one of these may begin a sentence

# The number of occurrences of each lower-cased word by kind (INSIDE, OPENING or LOWER).
Counts = collections.Counter[tuple[str, str]]


def count_capitals(paragraphs: Iterable[Iterable[str]]) -> Counts:
    """Counts the occurrences of each word with and without an initial capital; see `find_proper_nouns`.

    Args:
        paragraphs: Paragraphs of words in their original case. The first may continue a paragraph of another chunk: in
            any paragraph, a sentence may begin with the first word.
    """
    counts: Counts = collections.Counter()
    for paragraph in paragraphs:
        previous = '.'
        for word in paragraph:
            if word[:1].isupper():
                may_open = previous[-1:] in _SENTENCE_OPENERS or _PRONOUN.fullmatch(word)
                counts[lower(word), OPENING if may_open else INSIDE] += 1
            elif word[:1].islower():
                counts[lower(word), LOWER] += 1
            previous = word
    return counts


def find_proper_nouns(counts: Iterable[Counts]) -> tuple[str, ...]:
    """Finds the word types that are nearly always capitalized inside sentences.

    A type is a proper noun if it is capitalized inside a sentence at least once, and if at least 95% of its counted
    occurrences are capitalized. Capitalized words are not counted where a sentence may begin: at the start of a
    paragraph, and after . ! ? : ; a quotation mark, a bracket, a dash or =. A name that occurs only after "Mr." is
    therefore missed. The pronoun I is not a proper noun.

    Deviation: the paper (section 4) maps proper nouns to a symbol but does not say how they were found. This rule needs
    no tagger. It also classifies Monday, American, Mr and B52 as proper nouns.

    Args:
        counts: The counts from each chunk of a text.

    Returns:
        The proper nouns in lower case.

    Raises:
        BadInput: No word is capitalized.
    """
    total: Counts = collections.Counter()
    for chunk in counts:
        total.update(chunk)
    if not any(place in (INSIDE, OPENING) for _, place in total):
        raise BadInput(
            'corpus.proper_nouns',
            'must be False for a text without capital letters, which mark proper nouns',
            value=True,
        )
    inside = ((word, count) for (word, place), count in total.items() if place == INSIDE)
    return tuple(word for word, c in inside if c >= MIN_CAPITALISED_SHARE * (c + total[word, LOWER]))
