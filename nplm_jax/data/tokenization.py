"""Raw words to tokens: boundary tokens, possessives, numbers, proper nouns, case (the paper, section 4)."""

import collections
import dataclasses
import re
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import regex

from nplm_jax.config import CorpusSettings
from nplm_jax.utils.errors import BadInput, require

TEXT_BOUNDARY = '<text>'  # before each text of a corpus
PARAGRAPH_BOUNDARY = '<p>'  # before each paragraph
RARE = '<rare>'  # all words that are not in the vocabulary
NUMBER = '<number>'  # all numeric forms, under corpus.numbers
PROPER = '<proper>'  # all proper nouns, under corpus.proper_nouns

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


def token_streams(
    parts: Sequence[Sequence[str]], split_paragraphs: Callable[[str], list[Paragraph]], settings: CorpusSettings
) -> list[list[str]]:
    """Tokenizes each part of a corpus; proper nouns are searched over all parts together.

    Args:
        parts: For each part (the whole corpus, or its training, validation and test files) its texts.
        split_paragraphs: Splits a text into paragraphs of raw words.
        settings: The `corpus.*` choices.

    Returns:
        One stream of tokens for each part.

    Raises:
        BadInput: The settings ask for proper nouns and no word has a capital.
    """
    proper_nouns: Collection[str] = ()
    if settings.proper_nouns:
        raw = (p for part in parts for text in part for p in split_paragraphs(text))
        proper_nouns = find_proper_nouns(split_possessives(p, settings) for p in raw)
    return [tokenize(map(split_paragraphs, part), settings, proper_nouns) for part in parts]


def tokenize(
    texts: Iterable[list[Paragraph]], settings: CorpusSettings, proper_nouns: Collection[str] = ()
) -> list[str]:
    """Applies the `corpus.*` choices to texts of raw words and joins them to one stream of tokens.

    Each text begins with two boundary tokens, <text> and the <p> of its first paragraph. With the default settings
    Brown becomes 1,183,224 tokens of 48,132 types (the paper, section 4: 1,181,041 and 47,578).

    Args:
        texts: For each text its paragraphs.
        settings: The `corpus.*` choices.
        proper_nouns: Proper nouns in lower case, from `find_proper_nouns`; their capitalised occurrences become
            <proper>.
    """
    stream: list[str] = []
    for text in texts:
        if settings.boundary_tokens:
            stream.append(TEXT_BOUNDARY)
        for paragraph in text:
            if settings.boundary_tokens:
                stream.append(PARAGRAPH_BOUNDARY)
            words: Iterable[str] = split_possessives(paragraph, settings)
            if settings.numbers:
                words = (NUMBER if is_number(w) else w for w in words)
            if proper_nouns:
                words = (PROPER if w[:1].isupper() and w.lower() in proper_nouns else w for w in words)
            if settings.lowercase:
                words = (w.lower() for w in words)
            stream.extend(map(sys.intern, words))  # equal words share one string, which saves memory
    return stream


def tokenize_prompt(text: str, settings: CorpusSettings, known: Collection[str], kind: str = '') -> list[str]:
    """Tokenizes a user's text for a trained model as its corpus was tokenized, without boundary tokens.

    Brown, WikiText-2 and `sentences` separate their words by white space, so the text has to do so for their models.
    Under corpus.proper_nouns a capitalised word outside the vocabulary in both cases becomes <proper>, because a run
    does not store the proper nouns of its corpus.

    Args:
        text: The text.
        settings: The `corpus.*` choices of the model's run.
        known: The words of the vocabulary.
        kind: `words` or `whitespace`, as in `paragraphs`; '' splits as the corpus was split.
    """
    kind = kind or (settings.tokens if settings.name in ('text', 'ap_news') else 'whitespace')
    raw = paragraphs(text, kind)
    proper_nouns: Collection[str] = ()
    if settings.proper_nouns:
        words = {w for paragraph in raw for w in split_possessives(paragraph, settings)}
        proper_nouns = {w.lower() for w in words if w not in known and w.lower() not in known}
    return tokenize([raw], dataclasses.replace(settings, boundary_tokens=False), proper_nouns)


def is_number(word: str) -> bool:
    """Tells whether a word is a numeric form: 7, 1,995.5, -3, $5, 50%, 10-12, 9:30, 1/2, 1990s, 21st; not B52 or five.

    Deviation: the paper (section 4) does not say which forms it counts as numeric.
    """
    return _NUMBER.fullmatch(word) is not None


def find_proper_nouns(raw: Iterable[Paragraph]) -> frozenset[str]:
    """Finds the types that a text nearly always capitalises inside sentences.

    A type is a proper noun if it has a capital inside a sentence at least once, and if such occurrences are at least
    95% of these and its occurrences in lower case together. A word that opens a paragraph or follows one of . ! ? : ;
    a quotation mark, a bracket, a dash or a = may have its capital because it begins a sentence and is not counted; so
    a name that only follows "Mr." is missed. The pronoun I is not a proper noun.

    Deviation: the paper (section 4) maps proper nouns to a symbol and does not say how it found them. This rule needs
    no tagger; it takes Monday, American, Mr and B52 for proper nouns too.

    Args:
        raw: Paragraphs of words in their original case.

    Returns:
        The proper nouns in lower case.

    Raises:
        BadInput: No word has a capital.
    """
    capital: collections.Counter[str] = collections.Counter()
    lower: collections.Counter[str] = collections.Counter()
    has_capitals = False
    for paragraph in raw:
        previous = '.'
        for word in paragraph:
            if word[:1].isupper():
                has_capitals = True
                if previous[-1:] not in _SENTENCE_OPENERS and not _PRONOUN.fullmatch(word):
                    capital[word.lower()] += 1
            elif word[:1].islower():
                lower[word] += 1
            previous = word
    if not has_capitals:
        raise BadInput('corpus.proper_nouns=True: this text has no capital letter, by which proper nouns are found')
    return frozenset(w for w, c in capital.items() if c >= MIN_CAPITALISED_SHARE * (c + lower[w]))


def require_words(key: str, value: Any, words: list[str]) -> None:
    """Raises BadInput unless `words` has at least two types beside the boundary tokens."""
    num_types = len(set(words) - {TEXT_BOUNDARY, PARAGRAPH_BOUNDARY})
    require(num_types > 0, key, value, 'holds no words')
    require(num_types > 1, key, value, 'holds one word only; two different words or more are needed')


def split_possessives(words: Paragraph, settings: CorpusSettings) -> Paragraph:
    """Splits a possessive 's off its noun under corpus.split_possessive."""
    if not settings.split_possessive:
        return words
    split = ((w[:-2], w[-2:]) if len(w) > 2 and w.endswith(_POSSESSIVE) else (w,) for w in words)
    return [part for parts in split for part in parts]
