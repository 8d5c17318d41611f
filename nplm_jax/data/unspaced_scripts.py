"""Handles whitespace in scripts without spaces between words.

Texts in Chinese, Japanese, Thai, Lao, Khmer and some other languages have no spaces between words unless they have been
segmented, that is, unless a tool has inserted spaces between the words. Users' texts are joined or left segmented to
match the training text. The vocabulary's counts show whether the training text was segmented.
"""

import itertools
from collections.abc import Sequence

import regex

from nplm_jax.data import text_checks
from nplm_jax.data.tokenizers import cutting
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.utils.errors import require

SEGMENT = 'segment this text and the training text into words and train with corpus.tokens=whitespace'
RECIPE = f'{SEGMENT}, or train with corpus.tokens=pieces or characters'
_SEGMENT_THIS = 'segment this text into words separated by spaces'

_SCRIPTS = ('Han', 'Hiragana', 'Katakana', 'Bopomofo', 'Yi', 'Thai', 'Lao', 'Khmer', 'Myanmar', 'Tibetan')
_UNSPACED = regex.compile('[' + ''.join(rf'\p{{scx={script}}}' for script in _SCRIPTS) + r'\uff01-\uff65]')
_LETTER = regex.compile(r'\p{L}|\p{M}')
_WIDE = {0xE0, 0xE1, *range(0xE3, 0xEA), 0xEF, 0xF0}  # first UTF-8 bytes of characters of these scripts
# Spaces per character: segmented Thai has 1/5, segmented Chinese 1/2, and unsegmented text at most 1/30.
_SPACES_OF_SEGMENTED = 1 / 8
_SPACES_OF_OTHERS = 1 / 4  # per character; English has 1/5


def has_spaces(vocabulary: Vocabulary) -> bool:
    """Returns whether the training text has been segmented, so that spaces separate words even in these scripts.

    Args:
        vocabulary: A vocabulary with counts from the training text. If the vocabulary contains words, but none in these
            scripts, the result is True.
    """
    spaces = wide = others = 0
    if not vocabulary.tokenizer.is_lossless:  # a space follows each word
        for word, count in zip(vocabulary.words, vocabulary.counts):
            if (num_wide := len(_UNSPACED.findall(word))) and _LETTER.search(word):
                spaces, wide = spaces + count, wide + count * num_wide
        return not wide or spaces > _SPACES_OF_SEGMENTED * wide
    for token, count in zip(vocabulary.words, vocabulary.counts):
        data = vocabulary.tokenizer.utf8(token)
        starts = [byte for byte in data if byte & 0xC0 != 0x80 and byte > 0x20]  # first bytes of characters
        num_wide = sum(byte in _WIDE for byte in starts)
        spaces += count * data.count(b' ')
        wide += count * num_wide
        others += count * (len(starts) - num_wide)
    return spaces - _SPACES_OF_OTHERS * others > _SPACES_OF_SEGMENTED * wide


def find_joined(
    vocabulary: Vocabulary, items: Sequence[Sequence[str]], context: str = ''
) -> tuple[list[bool], list[bool]]:
    """Finds the words that no space separates from the preceding text or from the following text.

    The words of an item are joined in the same way as by `join`. The first word also joins the context.

    Args:
        vocabulary: The vocabulary of a lossless tokenizer.
        items: The words of each item.
        context: The text before each item on the same line.

    Returns:
        Two lists with one entry per word of all items: whether no space precedes the word, and whether none follows it.
    """
    if has_spaces(vocabulary):
        size = sum(map(len, items))
        return [False] * size, [False] * size
    joins_before, joins_after, is_segmented = [], [], _is_segmented(list(map(' '.join, items)))
    for words in items:
        joins, ends_unspaced = _find_joins(words, context)
        joins[1:] = [joined and is_segmented for joined in joins[1:]]
        joins_before += joins
        joins_after += [*joins[1:], ends_unspaced]
    return joins_before, joins_after


def join(vocabulary: Vocabulary, texts: Sequence[str]) -> list[str]:
    """Applies `join_segmented` if newlines are tokens and the training text has not been segmented.

    Args:
        vocabulary: The vocabulary of the models that read the texts.
        texts: The lines of a text, or a prompt.
    """
    is_joined = vocabulary.tokenizer.is_lossless and not (_is_segmented(texts) and has_spaces(vocabulary))
    return join_segmented(texts) if is_joined else list(texts)


def join_segmented(texts: Sequence[str]) -> list[str]:
    """Removes the spaces between the words of segmented texts.

    Unsegmented texts keep their spaces, for example the spaces between Thai sentences.
    """
    return [_join(text) for text in texts] if _is_segmented(texts) else list(texts)


def describe_text(vocabulary: Vocabulary, texts: Sequence[str]) -> str:
    """Returns a warning if the texts do not match the segmentation of the training text, otherwise an empty string."""
    if not any(map(_UNSPACED.search, texts)):
        return ''
    if not vocabulary.tokenizer.is_lossless:
        if not has_spaces(vocabulary):
            return f'warning: the training text has almost no spaces, so each phrase is treated as one word; {RECIPE}'
        words = list(filter(_is_unspaced, itertools.chain(*map(str.split, texts))))
        unknown = sum(not all(token in vocabulary.ids for token in vocabulary.tokenize(word)) for word in words)
        if unknown <= len(words) / 2:
            return ''
        return f'warning: {unknown:,} of {len(words):,} words in scripts without spaces are unknown; {RECIPE}'
    if _is_segmented(texts) or not has_spaces(vocabulary):
        return ''
    return f'warning: this text has almost no spaces, but the training text was segmented; {_SEGMENT_THIS}'


def describe(vocabulary: Vocabulary, items: Sequence[Sequence[str]]) -> str:
    """Returns a warning if models cannot score words in scripts without spaces, otherwise an empty string.

    Args:
        vocabulary: The vocabulary of the models.
        items: The words of each item.
    """
    if not any(_is_unspaced(word) for words in items for word in words):
        return ''
    lines, tokenizer = list(map(' '.join, items)), vocabulary.tokenizer
    if warning := describe_text(vocabulary, lines):
        return warning
    if text_checks.whitespace_share(lines) is not None:
        return f'warning: this text has almost no spaces, so each sentence is treated as one word; {_SEGMENT_THIS}'
    if tokenizer.is_lossless and not _is_segmented(lines) and any(True in _find_joins(words)[0] for words in items):
        return f'warning: this text has few spaces, so each phrase is treated as one word; {_SEGMENT_THIS}'
    if not tokenizer.is_lossless:
        return ''
    flags, _ = find_joined(vocabulary, items)
    joined = iter(flags)
    texts = [[word.strip() if next(joined) else f' {word.strip()}' for word in words] for words in items]
    cut = [list(itertools.chain(*cutting.tokenize(tokenizer, words))) for words in texts]
    wholes = cutting.tokenize(tokenizer, map(''.join, texts))
    crossed = sum(tokens != whole for tokens, whole in zip(cut, wholes))
    if not crossed:
        return ''
    found = f'tokens cross word boundaries in {crossed:,} of {len(items):,} items, so the surprisal is too high'
    return f'warning: {found}; {SEGMENT}'


def check_known(vocabulary: Vocabulary, texts: Sequence[str], key: str) -> None:
    """Raises BadInput if texts in scripts without spaces have no word in common with a vocabulary of words.

    Args:
        vocabulary: The vocabulary of the models.
        texts: The lines of a text, the items of an experiment, or a prompt.
        key: The source of the texts, for the error message.
    """
    if vocabulary.tokenizer.is_lossless or not any(map(_UNSPACED.search, texts)):
        return
    words = [word for word in itertools.chain(*map(vocabulary.tokenize, texts)) if _LETTER.search(word)]
    known = not words or any(word in vocabulary.ids for word in words)
    require(known, key, texts[0], f'must contain at least one word of the vocabulary; {RECIPE}')


def _is_segmented(texts: Sequence[str]) -> bool:
    """Returns whether spaces separate the words in these scripts; unsegmented texts have few spaces."""
    texts = [text for text in texts if not text.isascii()]  # skips English quickly
    num_unspaced = sum(len(_UNSPACED.findall(text)) for text in texts)
    if not num_unspaced:
        return False
    num_spaces = sum(sum(_find_joins(text.split(' '))[0]) for text in texts)
    return (num_spaces or 1) > _SPACES_OF_SEGMENTED * num_unspaced  # a text of one or two words may have no spaces


def _join(text: str) -> str:
    words = text.split(' ')
    joins, _ = _find_joins(words)
    return ''.join(word if joined else f' {word}' for joined, word in zip([True, *joins[1:]], words))


def _find_joins(words: Sequence[str], context: str = '') -> tuple[list[bool], bool]:
    """Returns, for each word, whether it joins the text before it, and whether the last word joins the text after it.

    Joined words have no space between them.
    """
    before, joins = _is_unspaced(context[::-1]), []
    for number, word in enumerate(map(str.strip, words)):
        start, end = _is_unspaced(word), _is_unspaced(word[::-1])
        follows = number > 0 or context != ''
        joins.append(follows and True in (before, start) and False not in (before, start))
        before = before if end is None else end
    return joins, before is True


def _is_unspaced(word: str) -> bool | None:
    """Returns whether a word's first letter or mark is in a script without spaces, or None if the word has neither."""
    for character in word:
        if _UNSPACED.match(character):
            return True
        if _LETTER.match(character):
            return False
    return None
