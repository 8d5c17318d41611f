"""Words of scripts that are written without blanks between words: how the words of an item are joined.

Chinese, Japanese, Thai, Lao, Khmer and others have no blanks between words, unless a text has been segmented.
"""

import itertools

import regex

from nplm_jax.apps.surprisal.stimuli import Stimuli
from nplm_jax.data import text_checks
from nplm_jax.data.tokenizers.byte_level import to_bytes
from nplm_jax.data.vocabulary import Vocabulary

RECIPE = 'segment the training text and the items into words, and train with corpus.tokens=whitespace'

_SCRIPTS = ('Han', 'Hiragana', 'Katakana', 'Bopomofo', 'Yi', 'Thai', 'Lao', 'Khmer', 'Myanmar', 'Tibetan')
_UNSPACED = regex.compile('[' + ''.join(rf'\p{{scx={script}}}' for script in _SCRIPTS) + r'\uff01-\uff65]')
_LETTER = regex.compile(r'\p{L}|\p{M}')
_WIDE = {0xE0, 0xE1, *range(0xE3, 0xEA), 0xEF, 0xF0}  # first bytes in UTF-8 of characters of these scripts
# Blanks per character: segmented Thai has 1/5, Chinese 1/2, and text as it is written 1/30 or fewer.
_BLANKS_OF_SEGMENTED = 1 / 8
_BLANKS_OF_OTHERS = 1 / 4  # a character; English has 1/5


def has_blanks(vocabulary: Vocabulary) -> bool:
    """Tells whether blanks stand between words of these scripts in the training text, which has been segmented.

    Args:
        vocabulary: That of a lossless tokenizer, whose tokens are counted in the training text.
    """
    blanks = wide = others = 0
    for token, count in zip(vocabulary.words, vocabulary.counts):
        data = to_bytes(token)
        starts = [byte for byte in data if byte & 0xC0 != 0x80 and byte > 0x20]  # first bytes of characters
        num_wide = sum(byte in _WIDE for byte in starts)
        blanks += count * data.count(b' ')
        wide += count * num_wide
        others += count * (len(starts) - num_wide)
    return blanks - _BLANKS_OF_OTHERS * others > _BLANKS_OF_SEGMENTED * wide


def find_joined(vocabulary: Vocabulary, stimuli: Stimuli, context: str = '') -> tuple[list[bool], list[bool]]:
    """Returns of each word whether it follows the one before without a blank, and whether no blank ends it.

    Args:
        vocabulary: That of a lossless tokenizer.
        stimuli: The words.
        context: The text before each item, if it does not end its line.
    """
    size = len(stimuli.words)
    joins_before, joins_after = [False] * size, [False] * size
    if has_blanks(vocabulary):
        return joins_before, joins_after
    for rows in stimuli.items:
        before = _is_unspaced(context[::-1])
        for row in rows:
            word = stimuli.words[row].strip()
            start, end = _is_unspaced(word), _is_unspaced(word[::-1])
            follows = row != rows.start or context != ''
            if joins := follows and True in (before, start) and False not in (before, start):
                joins_before[row] = True
            if joins and row != rows.start:
                joins_after[row - 1] = True
            before = before if end is None else end
        joins_after[rows.stop - 1] = before is True
    return joins_before, joins_after


def describe(vocabulary: Vocabulary, stimuli: Stimuli) -> str:
    """Returns a warning where a model has no probabilities of the words of these scripts, else an empty string."""
    unspaced = [word for word in stimuli.words if _is_unspaced(word)]
    if not unspaced:
        return ''
    if text_checks.few_blanks(stimuli.words) is not None:
        return f'warning: almost no blanks, so that a whole sentence is one word: {RECIPE}'
    tokenizer = vocabulary.tokenizer
    if not tokenizer.is_lossless:
        unknown = sum(not all(token in vocabulary.ids for token in vocabulary.tokenize(word)) for word in unspaced)
        if unknown <= len(unspaced) / 2:
            return ''
        return f'warning: {unknown:,} of {len(unspaced):,} words without blanks are unknown: {RECIPE}'
    joined, _ = find_joined(vocabulary, stimuli)
    words = [word.strip() if joins else f' {word.strip()}' for word, joins in zip(stimuli.words, joined)]
    cut = tokenizer.tokenize(words)
    texts = tokenizer.tokenize(''.join(words[row] for row in rows) for rows in stimuli.items)
    crossed = sum(
        list(itertools.chain(*(cut[row] for row in rows))) != text for rows, text in zip(stimuli.items, texts)
    )
    if not crossed:
        return ''
    items = f'in {crossed:,} of {len(stimuli.items):,} items the tokens of the text cross words'
    return f'warning: {items}, whose surprisal is too high: {RECIPE}'


def _is_unspaced(word: str) -> bool | None:
    """Tells whether the first letter of a word, or a mark before it, is of these scripts; None if nothing tells it."""
    for character in word:
        if _UNSPACED.match(character):
            return True
        if _LETTER.match(character):
            return False
    return None
