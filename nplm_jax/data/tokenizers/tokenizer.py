"""The base class of tokenizers."""

import abc
import dataclasses
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

import regex

from nplm_jax.config.component import Component, internal, key
from nplm_jax.data.stream import BOUNDARY_TOKENS
from nplm_jax.utils.errors import require

CONFIG_FILE = 'tokenizer_config.json'  # in a run's folder
RULES_FILE = 'tokenizer.json'  # in the format of Hugging Face's `tokenizers`; only for byte-level tokenizers
BLANK_LINES = re.compile(r'\n\s*\n')  # separate paragraphs

# Combining marks, and the other characters whose decomposition begins with one.
_MARK = r'[\P{ccc=0}\u0f73\u0f75\u0f81\uff9e\uff9f]'
_MANY_MARKS = regex.compile(rf'{_MARK}{{64}}(?={_MARK})')
_JOINER = '\u034f'


class TextChunk(NamedTuple):
    """Consecutive paragraphs of one text. The concatenation of all chunks of a text is the text.

    Attributes:
        text: At most about CHUNK_CHARACTERS characters. Texts are divided at empty lines. A long paragraph is divided
            after a newline or, without newlines, before a space or a tab. Words are never split.
        begins_text: Whether this is the first chunk of a text.
        begins_paragraph: False if the chunk continues the last paragraph of the previous chunk.
        ends_lines: Whether `<p>` is added at the end of each line, including empty lines, and nowhere else.
        keeps_empty: Whether exactly two newlines follow each paragraph, so that empty paragraphs are kept.
    """

    text: str
    begins_text: bool
    begins_paragraph: bool = True
    ends_lines: bool = False
    keeps_empty: bool = False


@dataclasses.dataclass(frozen=True)
class Tokenizer(Component, abc.ABC):
    """The base class of tokenizers, which split text into tokens and join tokens into text.

    A subclass implements `split` and `cut`. All fields must have defaults, and are saved with each run.

    Attributes:
        kind: The name of the tokenizer, a value of `corpus.tokens`.
        boundary_tokens: Whether to put <text> before each text of a corpus and <p> before each paragraph. With
            corpus.paragraphs=eos, only <p> is added, after each line.
        is_lossless: Whether every text can be tokenized and decoded exactly. Newlines are then ordinary tokens.
    """

    is_lossless: ClassVar[bool] = False
    kind: str = internal('')
    boundary_tokens: bool = key(True, 'insert <text> before each text and <p> before each paragraph', by_hand=False)

    @abc.abstractmethod
    def split(self, text: str) -> list[str]:
        """Splits a paragraph into strings, which `cut` tokenizes separately. Some characters may be dropped."""

    @abc.abstractmethod
    def cut(self, strings: Sequence[str], known: Collection[str] | None = None) -> list[list[str]]:
        """Returns the tokens of each string.

        Args:
            strings: Strings returned by `split`.
            known: The vocabulary to which the tokens of a user's text are adapted, or None for the text of a corpus.
        """

    def decode(self, tokens: Sequence[str], clean_up: bool = False) -> str:
        """Joins tokens into a text.

        Args:
            tokens: The tokens.
            clean_up: Whether to return ordinary text. Tokenizing this text again may give other tokens.
        """
        return ' '.join(tokens)

    def learn(
        self, texts: Sequence[Callable[[], Iterable[TextChunk]]], parallel_map: Callable[..., Iterator[Any]]
    ) -> Self:
        """Returns a tokenizer trained on texts, or `self` if it is already trained or needs no training.

        Args:
            texts: One function per text of the corpus, which returns the chunks of the text. The training text is
                first.
            parallel_map: A possibly parallel `map`. The mapped function takes a chunk and returns JSON-serializable
                values or a set, which may arrive as a list.
        """
        return self

    @property
    def tokens(self) -> tuple[str, ...] | None:
        """All tokens, including special tokens, or None if the words of the corpus determine the vocabulary."""
        return None

    def utf8(self, token: str) -> bytes:
        """Returns the UTF-8 bytes of a token in a text, including the implicit space or newline after the token."""
        return b'\n' if token in BOUNDARY_TOKENS else f'{token} '.encode()  # <p> is the newline of an empty line

    def normalize(self, text: str) -> str:
        """Returns the text to tokenize, normalized to Unicode Normalization Form C (NFC)."""
        return normalize(text)


def difference(tokenizer: Tokenizer, other: Tokenizer, name: str) -> str:
    """Describes how a tokenizer differs from `other`, the tokenizer of model `name`. Returns '' if they are equal."""
    if tokenizer == other:
        return ''
    fields = dataclasses.asdict(tokenizer) if type(tokenizer) is type(other) else ['kind']
    different = ', '.join(key for key in fields if getattr(tokenizer, key) != getattr(other, key))
    return f'its tokenizer differs from that of {name} ({different}) and splits text into different tokens'


def check_tokens(kind: str, tokens: Iterable[str]) -> None:
    """Raises BadInput if a vocabulary file cannot contain a token.

    Args:
        kind: The kind of the tokenizer.
        tokens: The distinct tokens.
    """
    allowed = 'tokens must not be empty or contain tabs, newlines, NUL or unpaired surrogates'
    for token in tokens:
        is_written = bool(token) and not re.search('[\t\n\0\ud800-\udfff]', token)
        require(is_written, 'corpus.tokens', kind, f'produces the token {token!r}; {allowed}')


def normalize(text: str, form: Literal['NFC', 'NFKC'] = 'NFC') -> str:
    """Normalizes a text to a Unicode normalization form."""
    # Normalization takes time quadratic in the number of marks on a letter. A joiner after every 64 marks bounds the
    # time, as in Unicode's Stream-Safe Text Format (UAX #15).
    return unicodedata.normalize(form, _MANY_MARKS.sub(lambda match: match[0] + _JOINER, text))


def count_characters(words: Iterable[str]) -> int:
    """Returns the number of characters in a text that consists of the given words.

    The space or newline after each word is included. Each <text> or <p> counts as one character, because it stands for
    the newline of an empty line.

    Examples:
        >>> count_characters(['<p>', 'the', 'dog', '.'])
        11
    """
    return sum(1 if word in BOUNDARY_TOKENS else len(word) + 1 for word in words)


def lower(text: str) -> str:
    """Returns a text in lower case. İ becomes i, without the combining dot that Unicode adds.

    Examples:
        >>> lower('İSTANBUL'), len(lower('İ'))
        ('istanbul', 1)
    """
    return text.replace('İ', 'i').lower()
