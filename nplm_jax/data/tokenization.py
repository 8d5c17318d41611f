"""Raw words to tokens: boundary tokens, possessives, numbers, proper nouns, case (the paper, section 4)."""

import collections
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

import regex

from nplm_jax.config import CorpusSettings
from nplm_jax.data.word_stream import WordStream
from nplm_jax.utils.errors import BadInput

TEXT_BOUNDARY = '<text>'  # before each text of a corpus
PARAGRAPH_BOUNDARY = '<p>'  # before each paragraph
RARE = '<rare>'  # all words that are not in the vocabulary
NUMBER = '<number>'  # all numeric forms, under corpus.numbers
PROPER = '<proper>'  # all proper nouns, under corpus.proper_nouns

RAW_TEXTS = ('text', 'ap_news', 'gutenberg')  # corpora that `corpus.tokens` splits; the others are split already

Paragraph = list[str]  # of raw words

MIN_CAPITALISED_SHARE = 0.95  # of a proper noun's occurrences
# A word may hold hyphens, apostrophes, points and commas; combining marks (\p{M}) belong to their letters.
# str.split separates at \x1c to \x1f too, which \s does not match.
_WORD = regex.compile(r"<[a-z]+>|[\w\p{M}]+(?:[-'’.,][\w\p{M}]+)*|[^\w\s\x1c-\x1f]")
_MANY_MARKS = regex.compile(r'\p{M}{64}(?=\p{M})')
_JOINER = '\u034f'
_POSSESSIVE = ("'s", "'S", '’s', '’S')
_NUMBER = re.compile(r'[-+$£€]?\.?\d+(?:[-.,:/]\d+)*(?:st|nd|rd|th|s)?%?', re.IGNORECASE)
_BLANK_LINES = re.compile(r'\n\s*\n')
_PRONOUN = re.compile(r"I(?:['’]\w+)?", re.IGNORECASE)
_SENTENCE_OPENERS = '.!?:;"“”\'‘’`([-–—*='  # the word after one of these may begin a sentence


def paragraphs(text: str, kind: str) -> list[Paragraph]:
    """Splits a text at blank lines into paragraphs, and each paragraph into raw words.

    Args:
        text: Any text.
        kind: `words` splits punctuation off (3.14, well-known and a <symbol> stay one word); `whitespace` splits at
            white space only.

    Examples:
        >>> paragraphs('A well-known 3.14, again.', 'words')
        [['A', 'well-known', '3.14', ',', 'again', '.']]
        >>> paragraphs('A well-known 3.14, again.', 'whitespace')
        [['A', 'well-known', '3.14,', 'again.']]
    """
    split: Callable[[str], list[str]] = str.split if kind == 'whitespace' else _WORD.findall
    # Normalization takes time in the square of the number of marks on a letter. A joiner after every 64 marks bounds
    # it, as Unicode's Stream-Safe Text Format (UAX #15) does.
    normalized = unicodedata.normalize('NFC', _MANY_MARKS.sub(lambda match: match[0] + _JOINER, text))
    return [words for block in _BLANK_LINES.split(normalized) if (words := split(block))]


class ProperNounCounts(NamedTuple):
    """How often a text writes each word, in lower case, with and without a capital; see `find_proper_nouns`.

    Attributes:
        capital: Occurrences with a capital inside a sentence.
        lower: Occurrences without a capital.
        has_capitals: Whether any word has a capital.
    """

    capital: collections.Counter[str]
    lower: collections.Counter[str]
    has_capitals: bool


def tokenize(
    raw: Iterable[Paragraph],
    settings: CorpusSettings,
    proper_nouns: Collection[str] = (),
    begins_text: bool = True,
    begins_paragraph: bool = True,
) -> WordStream:
    """Applies the `corpus.*` choices to paragraphs of raw words and joins them to one stream of tokens.

    A text begins with two boundary tokens, <text> and the <p> of its first paragraph. With the default settings
    Brown becomes 1,183,224 tokens of 48,132 types (the paper, section 4: 1,181,041 and 47,578).

    Args:
        raw: The paragraphs.
        settings: The `corpus.*` choices.
        proper_nouns: Proper nouns in lower case, from `find_proper_nouns`; their capitalised occurrences become
            <proper>.
        begins_text: Whether the first paragraph is the first one of its text.
        begins_paragraph: Whether the first paragraph is a whole one, and not the rest of one.
    """
    words: list[str] = [TEXT_BOUNDARY] if begins_text and settings.boundary_tokens else []
    for number, paragraph in enumerate(raw):
        if settings.boundary_tokens and (number or begins_paragraph):
            words.append(PARAGRAPH_BOUNDARY)
        words += paragraph
    # What becomes of a raw word does not depend on its neighbours, so each different word is looked at once.
    stream = WordStream.from_words(words)
    return stream.replace_types([tokenize_word(word, settings, proper_nouns) for word in stream.types])


def tokenize_word(word: str, settings: CorpusSettings, proper_nouns: Collection[str] = ()) -> list[str]:
    """Applies the `corpus.*` choices to a raw word.

    Returns:
        Its token; for a possessive under `corpus.split_possessive` those of its noun and of the 's.
    """
    tokens = split_possessives([word], settings)
    if settings.numbers:
        tokens = [NUMBER if is_number(w) else w for w in tokens]
    if proper_nouns:
        tokens = [PROPER if w[:1].isupper() and w.lower() in proper_nouns else w for w in tokens]
    return [w.lower() for w in tokens] if settings.lowercase else tokens


def is_number(word: str) -> bool:
    """Tells whether a word is a numeric form: 7, 1,995.5, -3, $5, 50%, 10-12, 9:30, 1/2, 1990s, 21st; not B52 or five.

    Deviation: the paper (section 4) does not say which forms it counts as numeric.
    """
    return _NUMBER.fullmatch(word) is not None


def count_proper_nouns(
    raw: Iterable[Paragraph], settings: CorpusSettings, begins_paragraph: bool = True
) -> ProperNounCounts:
    """Counts what `find_proper_nouns` needs; the counts of several pieces of a text can be added.

    Args:
        raw: Paragraphs of words in their original case.
        settings: The `corpus.*` choices, of which `corpus.split_possessive` counts.
        begins_paragraph: Whether the first paragraph is a whole one, and not the rest of one.
    """
    capital: collections.Counter[str] = collections.Counter()
    lower: collections.Counter[str] = collections.Counter()
    has_capitals = False
    for number, paragraph in enumerate(raw):
        previous = '.' if number or begins_paragraph else 'a'
        for word in split_possessives(paragraph, settings):
            if word[:1].isupper():
                has_capitals = True
                if previous[-1:] not in _SENTENCE_OPENERS and not _PRONOUN.fullmatch(word):
                    capital[word.lower()] += 1
            elif word[:1].islower():
                lower[word] += 1
            previous = word
    return ProperNounCounts(capital, lower, has_capitals)


def find_proper_nouns(pieces: Iterable[ProperNounCounts]) -> frozenset[str]:
    """Finds the types that a text nearly always capitalises inside sentences.

    A type is a proper noun if it has a capital inside a sentence at least once, and if such occurrences are at least
    95% of these and its occurrences in lower case together. A word that opens a paragraph or follows one of . ! ? : ;
    a quotation mark, a bracket, a dash or a = may have its capital because it begins a sentence and is not counted; so
    a name that only follows "Mr." is missed. The pronoun I is not a proper noun.

    Deviation: the paper (section 4) maps proper nouns to a symbol and does not say how it found them. This rule needs
    no tagger; it takes Monday, American, Mr and B52 for proper nouns too.

    Args:
        pieces: The counts of the pieces of a text.

    Returns:
        The proper nouns in lower case.

    Raises:
        BadInput: No word has a capital.
    """
    capital: collections.Counter[str] = collections.Counter()
    lower: collections.Counter[str] = collections.Counter()
    has_capitals = False
    for piece in pieces:
        capital.update(piece.capital)
        lower.update(piece.lower)
        has_capitals |= piece.has_capitals
    if not has_capitals:
        raise BadInput('corpus.proper_nouns=True: this text has no capital letter, by which proper nouns are found')
    return frozenset(w for w, c in capital.items() if c >= MIN_CAPITALISED_SHARE * (c + lower[w]))


def split_possessives(words: Paragraph, settings: CorpusSettings) -> Paragraph:
    """Splits a possessive 's off its noun under corpus.split_possessive."""
    if not settings.split_possessive:
        return words
    split = ((w[:-2], w[-2:]) if len(w) > 2 and w.endswith(_POSSESSIVE) else (w,) for w in words)
    return [part for parts in split for part in parts]
