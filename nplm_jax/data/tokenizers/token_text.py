"""Sizes, contents and display forms of tokens."""

import functools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nplm_jax.data.stream import BOUNDARY_TOKENS, RARE
from nplm_jax.data.tokenizers.tokenizer import Tokenizer

_SHOWN = {' ': '␣', '\n': r'\n', '\r': r'\r', '\t': r'\t'}


class TokenSize(NamedTuple):
    """What a token stands for in a text.

    Attributes:
        characters: Its characters, with the blank or line end after it where the text does not hold it.
        utf8_bytes: The same in bytes of UTF-8.
        begins_blank: Whether it begins with white space, or there is white space before it in every text.
        ends_blank: Whether it ends with white space, or there is white space after it in every text.
        has_text: Whether it holds anything else than white space.
    """

    characters: int
    utf8_bytes: int
    begins_blank: bool = True
    ends_blank: bool = True
    has_text: bool = True


def size(tokenizer: Tokenizer, token: str) -> TokenSize:
    """Returns the size of a token. Of a lossless tokenizer only white space of ASCII separates words, also in bytes."""
    data = tokenizer.utf8(token)
    characters = sum(byte & 0xC0 != 0x80 for byte in data)  # the bytes that begin one
    if data == f'{token} '.encode():  # a word, which may itself be white space of Unicode
        return TokenSize(characters, len(data))
    begins_blank, ends_blank = not data or data[:1].isspace(), not data or data[-1:].isspace()
    return TokenSize(characters, len(data), begins_blank, ends_blank, bool(data.strip()))


def letters(tokenizer: Tokenizer, token: str) -> bytes:
    """Returns the UTF-8 of what a token stands for in a text, without white space; none of a boundary token."""
    data = tokenizer.utf8(token)
    if tokenizer.is_lossless or token in BOUNDARY_TOKENS:
        return b''.join(data.split())
    return ''.join(data.decode(errors='surrogateescape').split()).encode(errors='surrogateescape')


def spells(tokenizer: Tokenizer, texts: Iterable[tuple[str, Sequence[str]]]) -> bool:
    """Returns whether tokens spell their texts, whatever the white space: their sizes are then those of the texts.

    The tokens of another model do not if it changes case or drops characters. Always True for lossless tokenizers, and
    for words that are counted in the corpus.

    Args:
        tokenizer: The tokenizer.
        texts: Texts with their tokens. Those with RARE are skipped: splits with unknown tokens are not measured.
    """
    if tokenizer.is_lossless or tokenizer.tokens is None:
        return True
    utf8 = functools.cache(tokenizer.utf8)
    known = ((text, tokens) for text, tokens in texts if RARE not in tokens)
    return all(b''.join(map(utf8, tokens)).split() == text.encode().split() for text, tokens in known)


def show(tokenizer: Tokenizer, token: str) -> str:
    """Returns the display form of a token, for lists and tables.

    For lossless tokenizers, a space is shown as ␣ and a byte of an incomplete character as <0xE4>, as in SentencePiece.
    """
    if not tokenizer.is_lossless or not (data := tokenizer.utf8(token)):
        return token
    text = data.decode(errors='surrogateescape')  # byte 0xE4 as U+DCE4
    bytes_shown = re.sub('[\udc80-\udcff]', lambda match: f'<0x{ord(match[0]) - 0xDC00:02X}>', text)
    return ''.join(_SHOWN.get(c, c if c.isprintable() else f'<U+{ord(c):04X}>') for c in bytes_shown)
