"""The protocol of a tokenizer."""

import abc
import collections
import dataclasses
import functools
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import regex

from nplm_jax.config.component import Part, built
from nplm_jax.data.stream import BOUNDARY_TOKENS, RARE, SKIPPED, UNKNOWN
from nplm_jax.data.word_stream import WordStream
from nplm_jax.utils.errors import BadInput, require

CONFIG_FILE = 'tokenizer_config.json'  # in the folder of a run
RULES_FILE = 'tokenizer.json'  # of Hugging Face's `tokenizers`; only of a byte-level tokenizer
BLANK_LINES = re.compile(r'\n\s*\n')  # separate paragraphs
_PLACED = {f'\0{mark}': mark for mark in BOUNDARY_TOKENS}  # what stands for them where no text has put them

COUNTED_KEYS = frozenset(
    f'corpus.{key}' for key in ('paragraphs', 'min_count', 'max_vocabulary', 'count_over')
)  # of a tokenizer whose vocabulary is counted in the corpus

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
    """

    text: str
    begins_text: bool
    begins_paragraph: bool = True
    ends_lines: bool = False


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


@dataclasses.dataclass(frozen=True)
class Tokenizer(Part, abc.ABC):
    """Splits a text into tokens and joins tokens to a text. Its fields are saved with a run; each has a default.

    A subclass defines `split` and `cut`.

    Attributes:
        kind: Its name, a value of `corpus.tokens`.
        boundary_tokens: Whether <text> stands before each text of a corpus, and <p> before each paragraph; under
            corpus.paragraphs=eos <p> after each line instead.
        joiner: What stands between two tokens of a text.
        is_lossless: Whether every text has tokens, which join to the same text.
    """

    joiner: ClassVar[str] = ' '
    is_lossless: ClassVar[bool] = False
    also_reads = COUNTED_KEYS
    kind: str = built('')
    boundary_tokens: bool = False

    @abc.abstractmethod
    def split(self, text: str) -> list[str]:
        """Splits a paragraph into strings, in order, that `cut` cuts one by one. Some characters may be left out."""

    @abc.abstractmethod
    def cut(self, string: str, known: Collection[str] | None = None) -> list[str]:
        """Cuts a string into tokens.

        Args:
            string: One of the strings that `split` returns.
            known: The tokens of the vocabulary, to which the text of a user may be fitted; None while reading a corpus.
        """

    def decode(self, tokens: Sequence[str], clean_up: bool = False) -> str:
        """Joins tokens to a text.

        Args:
            tokens: The tokens.
            clean_up: Whether the text should read as ordinary text, which may lose what `tokenize` needs.
        """
        return self.joiner.join(tokens)

    def show(self, token: str) -> str:
        """Returns a token as a list or a table shows it."""
        return token

    def learn(self, parts: Sequence[Callable[[], Iterable[Piece]]], parallel_map: Callable[..., Iterator[Any]]) -> Self:
        """Returns the tokenizer with what it learns from texts; itself if it has learned, or learns nothing.

        Args:
            parts: Read the pieces of a corpus, the first those of the training texts.
            parallel_map: `map`, possibly by several processes or machines: the function gets a piece and returns what
                JSON can hold, or a set, which may come as a list.
        """
        return self

    def difference(self, other: 'Tokenizer', name: str) -> str:
        """Returns how this tokenizer differs from the `other`, that of the model `name`; '' if both are the same."""
        if self == other:
            return ''
        fields = dataclasses.asdict(self) if type(self) is type(other) else ['kind']
        different = ', '.join(key for key in fields if getattr(self, key) != getattr(other, key))
        return f'its tokenizer is not that of {name} ({different}), and cuts text into other tokens'

    def reading(self, tokens: str = '', hyphens: str = 'keep') -> 'Tokenizer':
        """Returns the tokenizer of a user's text.

        Args:
            tokens: Another way to split the text than that of the corpus; empty for the same.
            hyphens: `split` cuts unknown words at hyphens.
        """
        require(not tokens, 'tokens', tokens, f'does not apply to a model of corpus.tokens={self.kind}')
        require(hyphens == 'keep', 'hyphens', hyphens, f'does not apply to a model of corpus.tokens={self.kind}')
        return self

    def to_hf(self, ids: Mapping[str, int]) -> Any:
        """Returns a tokenizer of Hugging Face's `tokenizers` with the same tokens.

        It has no `added_tokens`, which it would find in a text as they are spelled.

        Args:
            ids: The id of each token of the vocabulary.

        Raises:
            BadInput: There is no such tokenizer.
        """
        raise BadInput('--to', f'cannot write a tokenizer of corpus.tokens={self.kind}', value='hf')

    @property
    def tokens(self) -> tuple[str, ...] | None:
        """All tokens, the special ones included; None if the vocabulary is counted in the corpus."""
        return None

    def size(self, token: str) -> TokenSize:
        """Returns what a token stands for in a text."""
        if token in BOUNDARY_TOKENS:  # the line end of an empty line
            return TokenSize(1, 1, has_text=False)
        return TokenSize(len(token) + 1, len(token.encode()) + 1)

    def letters(self, token: str) -> bytes:
        """Returns the UTF-8 of what a token stands for in a text, without white space; none of a boundary token."""
        return b'' if token in BOUNDARY_TOKENS else ''.join(token.split()).encode()

    def normalize(self, text: str) -> str:
        """Returns the text that is cut: in Unicode's normal form NFC."""
        return normalize(text)

    def paragraphs(self, text: str) -> list[list[str]]:
        """Splits a text at blank lines into paragraphs, and each paragraph into the strings that `cut` cuts."""
        return [strings for block in BLANK_LINES.split(self.normalize(text)) if (strings := self.split(block))]

    def paragraphs_of(self, piece: Piece) -> list[list[str]]:
        """Splits a piece into its paragraphs, or into its lines if `<p>` ends each."""
        if not piece.ends_lines:
            return self.paragraphs(piece.text)
        return list(map(self.split, self.normalize(piece.text).split('\n')))

    def read_piece(self, piece: Piece) -> tuple[WordStream, dict[str, int]]:
        """Returns a piece of a corpus as one stream of tokens, with the boundary tokens.

        Special tokens written in the text do not become boundary tokens: SKIPPED are left out, UNKNOWN become RARE.

        Returns:
            The stream, and how often the text has each special token.
        """
        text_mark, paragraph_mark = _PLACED
        strings = [text_mark] if piece.begins_text and self.boundary_tokens else []
        for number, paragraph in enumerate(self.paragraphs_of(piece)):
            if self.boundary_tokens and not piece.ends_lines and (number or piece.begins_paragraph):
                strings.append(paragraph_mark)
            strings += paragraph
            if piece.ends_lines:
                strings.append(paragraph_mark)
        stream = WordStream.from_words(strings)  # what becomes of a string does not depend on its neighbours
        written: collections.Counter[str] = collections.Counter()
        parts = []
        for string, count in zip(stream.types, np.bincount(stream.type_ids_L, minlength=len(stream.types)).tolist()):
            tokens = [_PLACED[string]] if string in _PLACED else self.cut(string)
            if string not in _PLACED:
                for token in tokens:
                    if token in SKIPPED or token in UNKNOWN:
                        written[token] += count
                tokens = [RARE if token in UNKNOWN else token for token in tokens if token not in SKIPPED]
            parts.append(tokens)
        return stream.replace_types(parts), dict(written)

    def drop_last(self, text: str) -> str:
        """Returns a text without its last word; where tokens are not words, without the last token."""
        return ' '.join(text.split()[:-1])

    def tokenize(
        self, texts: Iterable[str], known: Collection[str] | None = None, keep_marks: bool = False
    ) -> list[list[str]]:
        """Returns the tokens of each text.

        Special tokens written in a text are read as in a corpus: SKIPPED are left out, and UNKNOWN are no words of any
        vocabulary.

        Args:
            texts: The texts.
            known: See `cut`.
            keep_marks: Whether a boundary token in a text is that token, as in a context that is given with its marks.
        """
        skipped = () if self.is_lossless else SKIPPED[len(BOUNDARY_TOKENS) :] if keep_marks else SKIPPED
        cut = functools.cache(lambda string: [token for token in self.cut(string, known) if token not in skipped])
        return [[token for string in self.split(self.normalize(text)) for token in cut(string)] for text in texts]


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
