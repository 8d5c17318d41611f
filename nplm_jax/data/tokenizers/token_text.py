"""Computes the sizes, contents and display forms of tokens."""

import functools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nplm_jax.data.stream import BOUNDARY_TOKENS, RARE, SKIPPED
from nplm_jax.data.tokenizers.tokenizer import Tokenizer, lower, normalize

_SHOWN = {' ': '␣', '\n': r'\n', '\r': r'\r', '\t': r'\t'}
_MARKS = re.compile(r'[^\w<>]+')  # excludes < and >, which distinguish <number> from `number`


class TokenSize(NamedTuple):
    """The size of a token in a text.

    Attributes:
        characters: The number of characters, including the space or newline that follows the token, unless this
            whitespace is itself a token.
        utf8_bytes: The number of UTF-8 bytes, including the same space or newline.
        begins_space: Whether the token begins with whitespace or always follows whitespace.
        ends_space: Whether the token ends with whitespace or always precedes whitespace.
        words: The number of words, or parts of words, in the token. Some tokenizer files join several words in a token.
    """

    characters: int
    utf8_bytes: int
    begins_space: bool = True
    ends_space: bool = True
    words: int = 1


def size(tokenizer: Tokenizer, token: str) -> TokenSize:
    """Returns the size of a token. For lossless tokenizers, only ASCII whitespace separates words."""
    data = tokenizer.utf8(token)
    characters = sum(byte & 0xC0 != 0x80 for byte in data)  # counts first bytes
    if data == f'{token} '.encode():  # a word, which may itself be Unicode whitespace
        return TokenSize(characters, len(data))
    begins_space, ends_space = not data or data[:1].isspace(), not data or data[-1:].isspace()
    return TokenSize(characters, len(data), begins_space, ends_space, len(data.split()))


def letters(tokenizer: Tokenizer, token: str) -> bytes:
    """Returns the UTF-8 bytes of a token's text without whitespace. A boundary token has none."""
    data = tokenizer.utf8(token)
    if tokenizer.is_lossless or token in BOUNDARY_TOKENS:
        return b''.join(data.split())
    return ''.join(data.decode(errors='surrogateescape').split()).encode(errors='surrogateescape')


def spells(tokenizer: Tokenizer, texts: Iterable[tuple[str, Sequence[str]]]) -> bool:
    """Returns whether tokens reproduce their texts except for whitespace, so that token sizes add up to text sizes.

    Tokenizers of other models may change case or drop characters. Words counted in the corpus may change case, but
    <number> and <proper> do not reproduce the words that they replace. The result is always True for lossless
    tokenizers.

    Args:
        tokenizer: The tokenizer.
        texts: Texts and their tokens. Texts with RARE are skipped, because the sizes of splits with unknown tokens are
            not used.
    """
    if tokenizer.is_lossless:
        return True
    if tokenizer.tokens is None:
        changed = ((lower(text), tokens) for text, tokens in texts if [text] != tokens and RARE not in tokens)
        unmarked = ((text, tokens) for text, tokens in changed if not any(mark in text for mark in SKIPPED))
        return all(text.casefold() == ''.join(map(lower, tokens)).casefold() for text, tokens in unmarked)
    utf8 = functools.cache(tokenizer.utf8)
    known = ((text, tokens) for text, tokens in texts if RARE not in tokens)
    return all(b''.join(map(utf8, tokens)).split() == text.encode().split() for text, tokens in known)


def keeps_letters(tokenizer: Tokenizer, texts: Iterable[tuple[str, Sequence[str]]], any_form: bool = False) -> bool:
    """Returns whether the tokens of a user's texts contain the same letters as the texts after NFC normalization.

    If not, the probability of the tokens is not the probability of the text. Word tokenizers may lower-case words,
    replace numbers and proper nouns, rewrite quotation marks, and skip marks such as <s>.

    Args:
        tokenizer: The tokenizer.
        texts: Texts and their tokens.
        any_form: Whether to ignore case, punctuation and compatible characters (NFKC) if the tokenizer is lossless or
            its vocabulary is counted in the corpus.
    """
    if tokenizer.is_lossless:
        return any_form or all(tokenizer.normalize(text) in (text, normalize(text)) for text, _ in texts)
    if tokenizer.tokens is not None:
        return spells(tokenizer, texts)
    letters_of = functools.cache(functools.partial(letters, tokenizer))

    def form(text: str) -> str:
        text = normalize(''.join(text.split()))
        return _MARKS.sub('', text.casefold()) if any_form else text

    spelled = ((text, b''.join(map(letters_of, tokens)).decode(errors='surrogateescape')) for text, tokens in texts)
    return all(form(text) == form(found) for text, found in spelled)


def show(tokenizer: Tokenizer, token: str) -> str:
    """Returns the display form of a token, for lists and tables.

    For lossless tokenizers, a space is shown as ␣ and a byte of an incomplete character as <0xE4>, as in SentencePiece.
    """
    if not tokenizer.is_lossless or not (data := tokenizer.utf8(token)):
        return token
    text = data.decode(errors='surrogateescape')  # byte 0xE4 becomes U+DCE4
    bytes_shown = re.sub('[\udc80-\udcff]', lambda match: f'<0x{ord(match[0]) - 0xDC00:02X}>', text)
    return ''.join(_SHOWN.get(c, c if c.isprintable() else f'<U+{ord(c):04X}>') for c in bytes_shown)
