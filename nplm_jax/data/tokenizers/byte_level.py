"""Lossless byte-level tokenizers without unknown tokens.

A token is a string of bytes in GPT-2's byte-level alphabet, which maps each byte to a visible character. For example,
` dog` becomes `Ġdog`. A token may be part of a character.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import regex
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from nplm_jax.config.component import internal, key
from nplm_jax.data.stream import BOUNDARY_TOKENS, RARE, TEXT_BOUNDARY
from nplm_jax.data.tokenizers.tokenizer import TextChunk, Tokenizer, normalize
from nplm_jax.utils.errors import BadInput

_VISIBLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = [byte for byte in range(256) if byte not in _VISIBLE]
_FORMS: dict[str, Literal['NFC', 'NFKC']] = {'nfc': 'NFC', 'nfkc': 'NFKC'}
ALPHABET = tuple(chr(byte if byte in _VISIBLE else 256 + _OTHERS.index(byte)) for byte in range(256))  # indexed by byte
_TO_ALPHABET = dict(enumerate(ALPHABET))
_TO_BYTES = {ord(character): byte for byte, character in enumerate(ALPHABET)}


def to_alphabet(text: str) -> str:
    """Returns the UTF-8 bytes of a text in GPT-2's byte-level alphabet.

    Raises:
        BadInput: The text has an unpaired surrogate.

    Examples:
        >>> to_alphabet(' né')
        'ĠnÃ©'
    """
    try:
        return text.encode().decode('latin-1').translate(_TO_ALPHABET)
    except UnicodeEncodeError as error:
        surrogate = f'U+{ord(text[error.start]):04X}'
        raise BadInput('text', f'contains an unpaired surrogate ({surrogate}), which UTF-8 cannot encode') from None


def to_bytes(token: str) -> bytes:
    """Returns the bytes of a token. A special token has none."""
    return b'' if token in (RARE, *BOUNDARY_TOKENS) else token.translate(_TO_BYTES).encode('latin-1')


@dataclasses.dataclass(frozen=True)
class ByteTokenizer(Tokenizer):
    """A tokenizer that cuts a text into bytes.

    Subclasses cut a text into learned units of several bytes.

    Attributes:
        pattern: A regular expression whose matches cover every text. Each match is tokenized separately.
        normalization: The Unicode normalization form of the text before tokenization: nfc, nfkc, or none.
        rules: The learned rules, in a form that each subclass defines.
    """

    is_lossless: ClassVar[bool] = True
    pattern: ClassVar[str] = r'[\s\S]'

    kind: str = internal('bytes')
    normalization: Literal['none', 'nfc', 'nfkc'] = key(
        'none', 'Unicode normalization of the text; none keeps every byte'
    )
    rules: tuple[str, ...] = internal((), repr=False)

    @property
    def units(self) -> Sequence[str]:
        """The tokens with more than one byte."""
        return ()

    def model(self, ids: Mapping[str, int]) -> models.Model:
        """Returns a Hugging Face `tokenizers` model with these token ids, for strings in the byte-level alphabet."""
        return models.BPE(dict(ids), [])

    def rules_of(self, model: Mapping[str, Any]) -> tuple[str, ...]:
        """Returns the rules of the `model` in a saved tokenizer.json.

        Raises:
            KeyError, TypeError or ValueError: The model is of another kind.
        """
        return ()

    @property
    def tokens(self) -> tuple[str, ...]:
        """See `Tokenizer.tokens`."""
        return (RARE, *([TEXT_BOUNDARY] if self.boundary_tokens else []), *ALPHABET, *self.units)

    def normalize(self, text: str) -> str:
        """See `Tokenizer.normalize`."""
        form = _FORMS.get(self.normalization)
        return normalize(text, form) if form else text

    def split(self, text: str) -> list[str]:
        """See `Tokenizer.split`."""
        return regex.findall(self.pattern, text)

    def cut(self, strings: Sequence[str], known: Collection[str] | None = None) -> list[list[str]]:
        """See `Tokenizer.cut`."""
        return [list(to_alphabet(string)) for string in strings]

    def utf8(self, token: str) -> bytes:
        """See `Tokenizer.utf8`. The bytes may be part of a character."""
        return to_bytes(token)

    def decode(self, tokens: Sequence[str], clean_up: bool = False) -> str:
        """See `Tokenizer.decode`. Invalid UTF-8, which a model may generate, becomes U+FFFD."""
        return b''.join(map(to_bytes, tokens)).decode(errors='replace')

    def to_hf(self, ids: Mapping[str, int]) -> tokenizers.Tokenizer:
        """Returns a Hugging Face tokenizer with the same tokens.

        The result has no `added_tokens`, because these would also be recognized in ordinary text.

        Args:
            ids: The id of each token of the vocabulary.
        """
        exported = tokenizers.Tokenizer(self.model(ids))
        if form := _FORMS.get(self.normalization):
            exported.normalizer = getattr(normalizers, form)()
        strings = pre_tokenizers.Split(tokenizers.Regex(self.pattern), 'isolated')
        alphabet = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        exported.pre_tokenizer = pre_tokenizers.Sequence([strings, alphabet])
        exported.decoder = decoders.ByteLevel()
        return exported

    def ids_of(self, model: Mapping[str, Any]) -> dict[str, int]:
        """Returns the id of each token in the `model` of a saved tokenizer.json."""
        return dict(model['vocab'])


@dataclasses.dataclass(frozen=True)
class CharacterTokenizer(ByteTokenizer):
    """A tokenizer that cuts a text into characters. Characters that are absent from the training texts become bytes.

    `rules` contains the known characters with more than one byte.
    """

    kind: str = internal('characters')

    @property
    def units(self) -> Sequence[str]:
        """See `ByteTokenizer.units`."""
        return [to_alphabet(character) for character in self.rules]

    def learn(
        self, texts: Sequence[Callable[[], Iterable[TextChunk]]], parallel_map: Callable[..., Iterator[Any]]
    ) -> Self:
        """Collects the characters of the training texts."""
        if self.rules:
            return self
        characters = set().union(*parallel_map(self._find_characters, texts[0]()))
        return dataclasses.replace(self, rules=tuple(sorted(c for c in characters if len(c.encode()) > 1)))

    def cut(self, strings: Sequence[str], known: Collection[str] | None = None) -> list[list[str]]:
        """See `Tokenizer.cut`."""
        characters, tokens = self._characters, map(to_alphabet, strings)
        return [[token] if string in characters else list(token) for string, token in zip(strings, tokens)]

    def model(self, ids: Mapping[str, int]) -> models.Model:
        """See `ByteTokenizer.model`."""
        return models.BPE(dict(ids), [], ignore_merges=True)  # unknown characters are cut into bytes

    def rules_of(self, model: Mapping[str, Any]) -> tuple[str, ...]:
        """See `ByteTokenizer.rules_of`."""
        units = (to_bytes(token).decode() for token in model['vocab'] if len(token) > 1)
        return tuple(sorted(unit for unit in units if len(unit) == 1))

    @functools.cached_property
    def _characters(self) -> frozenset[str]:
        return frozenset(self.rules)

    def _find_characters(self, chunk: TextChunk) -> set[str]:
        return set(self.normalize(chunk.text))
