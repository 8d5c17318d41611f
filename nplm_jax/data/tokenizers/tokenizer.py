"""The base class of tokenizers."""

import abc
import dataclasses
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

import regex

from nplm_jax.config.component import Component, built, key
from nplm_jax.data.stream import BOUNDARY_TOKENS
from nplm_jax.utils.errors import require

CONFIG_FILE = 'tokenizer_config.json'  # in the folder of a run
RULES_FILE = 'tokenizer.json'  # of Hugging Face's `tokenizers`; only of a byte-level tokenizer
BLANK_LINES = re.compile(r'\n\s*\n')  # separate paragraphs

# Combining marks, and the other characters whose decomposition begins with one.
_MARK = r'[\P{ccc=0}\u0f73\u0f75\u0f81\uff9e\uff9f]'
_MANY_MARKS = regex.compile(rf'{_MARK}{{64}}(?={_MARK})')
_JOINER = '\u034f'


class Piece(NamedTuple):
    """Consecutive paragraphs of one text. The pieces of a text, joined, are the text.

    Attributes:
        text: About PIECE_CHARACTERS at most. A border between pieces is a blank line if there is one, else, inside a
            long paragraph, white space, a line end first. It never splits a word.
        begins_text: True for the first piece of a text.
        begins_paragraph: False if the piece goes on with the paragraph in which the previous piece ended.
        ends_lines: Whether `<p>` ends each line of the text, blank ones too, and stands nowhere else.
        keeps_empty: Whether two line ends end each paragraph, empty ones too.
    """

    text: str
    begins_text: bool
    begins_paragraph: bool = True
    ends_lines: bool = False
    keeps_empty: bool = False


@dataclasses.dataclass(frozen=True)
class Tokenizer(Component, abc.ABC):
    """Splits a text into tokens and joins tokens to a text. Its fields are saved with a run; each has a default.

    A subclass defines `split` and `cut`.

    Attributes:
        kind: Its name, a value of `corpus.tokens`.
        boundary_tokens: Whether <text> stands before each text of a corpus, and <p> before each paragraph; under
            corpus.paragraphs=eos <p> after each line instead.
        is_lossless: Whether every text has tokens, which join to the same text. A line end is then a token like others.
    """

    is_lossless: ClassVar[bool] = False
    kind: str = built('')
    boundary_tokens: bool = key(True, 'put <text> before each text and <p> before each paragraph', by_hand=False)

    @abc.abstractmethod
    def split(self, text: str) -> list[str]:
        """Splits a paragraph into strings, in order, that `cut` cuts one by one. Some characters may be left out."""

    @abc.abstractmethod
    def cut(self, strings: Sequence[str], known: Collection[str] | None = None) -> list[list[str]]:
        """Returns the tokens of each string.

        Args:
            strings: Strings that `split` returns.
            known: The tokens of the vocabulary, to which the text of a user may be fitted; None while reading a corpus.
        """

    def decode(self, tokens: Sequence[str], clean_up: bool = False) -> str:
        """Joins tokens to a text.

        Args:
            tokens: The tokens.
            clean_up: Whether the text should read as ordinary text, which may not be cut into the same tokens again.
        """
        return ' '.join(tokens)

    def learn(self, parts: Sequence[Callable[[], Iterable[Piece]]], parallel_map: Callable[..., Iterator[Any]]) -> Self:
        """Returns the tokenizer trained on texts; itself if it is already trained or needs no training.

        Args:
            parts: Functions that return the pieces of each part of a corpus, the training texts first.
            parallel_map: A possibly parallel `map`. The mapped function takes a piece and returns JSON-serializable
                values or a set, which may arrive as a list.
        """
        return self

    @property
    def tokens(self) -> tuple[str, ...] | None:
        """All tokens, the special ones included; None if the vocabulary is counted in the corpus."""
        return None

    def utf8(self, token: str) -> bytes:
        """Returns what a token stands for in a text, with the blank or line end after it where it does not hold it."""
        return b'\n' if token in BOUNDARY_TOKENS else f'{token} '.encode()  # <p> is the line end of an empty line

    def normalize(self, text: str) -> str:
        """Returns the text that is cut: in Unicode's normal form NFC."""
        return normalize(text)


def difference(tokenizer: Tokenizer, other: Tokenizer, name: str) -> str:
    """Returns how a tokenizer differs from the `other`, that of the model `name`; '' if both are the same."""
    if tokenizer == other:
        return ''
    fields = dataclasses.asdict(tokenizer) if type(tokenizer) is type(other) else ['kind']
    different = ', '.join(key for key in fields if getattr(tokenizer, key) != getattr(other, key))
    return f'its tokenizer is not that of {name} ({different}), and cuts text into other tokens'


def check_tokens(kind: str, tokens: Iterable[str]) -> None:
    """Raises BadInput for a token that no line of a vocabulary's file can hold: empty, or with a tab or line end.

    Args:
        kind: The kind of the tokenizer that made them.
        tokens: The different tokens.
    """
    for token in tokens:
        is_written = bool(token) and '\t' not in token and '\n' not in token
        require(is_written, 'corpus.tokens', kind, f'makes the token {token!r}: must be without tabs and line ends')


def normalize(text: str, form: Literal['NFC', 'NFKC'] = 'NFC') -> str:
    """Returns a text in a normal form of Unicode."""
    # The time of normalization is quadratic in the number of marks on a letter. A joiner after every 64 marks bounds
    # it, as Unicode's Stream-Safe Text Format (UAX #15) does.
    return unicodedata.normalize(form, _MANY_MARKS.sub(lambda match: match[0] + _JOINER, text))


def count_characters(words: Iterable[str]) -> int:
    """Returns the number of characters of tokenized words as a text.

    These are the characters of each word and one blank or line end after it. The marks <text> and <p> count as one
    character: the line end of an empty line.

    Examples:
        >>> count_characters(['<p>', 'the', 'dog', '.'])
        11
    """
    return sum(1 if word in BOUNDARY_TOKENS else len(word) + 1 for word in words)


def lower(text: str) -> str:
    """Returns a text in lower case; İ becomes i, without the combining dot that Unicode adds.

    Examples:
        >>> lower('İSTANBUL'), len(lower('İ'))
        ('istanbul', 1)
    """
    return text.replace('İ', 'i').lower()
