"""Tokenizers of other models, read from a Hugging Face tokenizer.json file or a SentencePiece model (`*.model`).

The library that wrote the file tokenizes each paragraph without adding special tokens. No code from the file is
executed.
"""

import base64
import dataclasses
import functools
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import tokenizers

from nplm_jax.config.component import internal
from nplm_jax.data.stream import BOUNDARY_TOKENS, RARE, SKIPPED, SPECIAL_TOKENS, UNKNOWN
from nplm_jax.data.tokenizers.byte_level import to_bytes
from nplm_jax.data.tokenizers.tokenizer import Tokenizer, check_tokens
from nplm_jax.utils.errors import BadInput, first_line, require
from nplm_jax.utils.io import expand
from nplm_jax.utils.packages import require_package
from nplm_jax.utils.untrusted import decode, read_bytes

MAX_BYTES = 2**26 - 2**12  # maximum size of a file and of the file's copy in a run; leaves room for other JSON values
MAX_TOKENS = 2**20
_KEY = 'corpus.tokens'
_KINDS = {'.json': 'tokenizer.json', '.model': 'tokenizer.model'}  # by file suffix
_BYTE = re.compile('<0x([0-9A-F]{2})>')  # a byte token of SentencePiece
_BATCH = 2**12  # number of strings cut at once, which limits the memory for encodings
_BYTES, _SPACES, _PREFIX, _SUFFIX, _WORDS = 'ByteLevel', 'Metaspace', 'WordPiece', 'BPEDecoder', 'WordLevel'


class HuggingFace:
    """A Hugging Face tokenizer.json file.

    Attributes:
        values: The content of the file, without rules that add, drop or sample tokens.
        ids: The id of each token.
        unknown: The token for unknown text, or '' if there is none.
        marking: The name of the decoder or model that defines how tokens mark word boundaries, or '' if none does.
        affix: The prefix of tokens inside a word (WordPiece), or the suffix of each word's last token (BPEDecoder).
    """

    def __init__(self, text: str) -> None:
        values = json.loads(text)
        if not isinstance(values, dict) or not isinstance(values.get('model'), dict):
            raise ValueError('the file has no model')
        self.values = _without_processing(values)
        self._tokenizer = tokenizers.Tokenizer.from_str(json.dumps(self.values))
        self.ids = self._tokenizer.get_vocab()
        self._tokens = {i: token for token, i in self.ids.items()}
        model, decoder = self.values['model'], self.values.get('decoder') or {}
        unknown = model.get('unk_token') or ''
        if model.get('type') == 'Unigram' and model.get('unk_id') is not None:
            unknown, _ = model['vocab'][model['unk_id']]
        self.unknown = unknown
        steps = [step['type'] for step in decoder.get('decoders', [decoder]) if step]
        markings = [name for name in (_BYTES, _SPACES, _PREFIX, _SUFFIX) if name in steps]
        spaces = any(step.get('pattern') == {'String': '▁'} for step in decoder.get('decoders', []))
        self.marking = (markings or [_SPACES] * spaces or [_WORDS] * (model.get('type') == _WORDS) or [''])[0]
        self.affix = str(decoder.get('prefix' if self.marking == _PREFIX else 'suffix') or '')
        if self.marking != _SUFFIX and model.get('end_of_word_suffix'):  # as in CLIP
            self.marking = ''

    def cut(self, strings: Sequence[str]) -> list[list[str]]:
        """Returns the tokens of each string, without adding special tokens."""
        encodings = self._tokenizer.encode_batch_fast(list(strings), add_special_tokens=False)
        return [[self._tokens[i] for i in encoding.ids] for encoding in encodings]  # `.tokens` spells out unknown text

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of the tokens with these ids."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)


class SentencePiece:
    """A SentencePiece model, with the interface of `HuggingFace`."""

    marking, affix = _SPACES, ''

    def __init__(self, model: bytes) -> None:
        package = require_package('sentencepiece', 'sentencepiece')
        self._processor = package.SentencePieceProcessor(model_proto=model)
        self._tokens = [self._processor.id_to_piece(i) for i in range(self._processor.get_piece_size())]
        self.ids = {token: i for i, token in enumerate(self._tokens)}
        self.unknown = self._tokens[self._processor.unk_id()]

    def cut(self, strings: Sequence[str]) -> list[list[str]]:
        """See `HuggingFace.cut`."""
        return [[self._tokens[i] for i in ids] for ids in self._processor.encode(list(strings))]

    def decode(self, ids: Sequence[int]) -> str:
        """See `HuggingFace.decode`."""
        return self._processor.decode(list(ids))


@dataclasses.dataclass(frozen=True)
class FileTokenizer(Tokenizer):
    """A tokenizer that cuts whole paragraphs into the tokens of a file; `corpus.tokens` is the path of the file.

    The vocabulary contains all tokens in the file, with the same spelling. <rare> replaces the token for unknown text,
    and <p> and <text> replace <s> and </s>. Whitespace and letters that the file's rules drop or change are lost.

    Attributes:
        rules: The content of the file, in Base64 for a SentencePiece model. '' before `read`.
    """

    kind: str = internal('tokenizer.json')
    rules: tuple[str, ...] = internal((), repr=False)

    def read(self) -> Self:
        """Reads the file whose path is `self.name`, and returns a tokenizer with the rules in this file.

        Raises:
            BadInput: The file is missing or is not a supported tokenizer.
        """
        path = expand(_KEY, self.name)
        data, kind = read_bytes(f'{_KEY}={self.name!r}', path, MAX_BYTES), _KINDS[path.suffix]
        is_json = kind == 'tokenizer.json'
        content = decode(f'{_KEY}={self.name!r}', data) if is_json else base64.b64encode(data).decode()
        copy = len(json.dumps(content))  # the run keeps a copy in a JSON file, which must be readable
        require(copy <= MAX_BYTES, _KEY, self.name, f'is too large to copy into a run ({copy:,} bytes)')
        made = dataclasses.replace(self, kind=kind, rules=(content,))
        library = made.library
        allowed = f'must have between 3 and {MAX_TOKENS:,} tokens, not {len(library.ids):,}'
        require(2 < len(library.ids) <= MAX_TOKENS, _KEY, self.name, allowed)
        allowed = f'must have the decoder {_BYTES}, {_SPACES}, {_PREFIX} or {_SUFFIX}, or the model {_WORDS}'
        require(bool(library.marking), _KEY, self.name, allowed)
        check_tokens(self.name, made.tokens)
        return made

    @functools.cached_property
    def library(self) -> HuggingFace | SentencePiece:
        """The tokenizer in the file, as an object of the library that wrote the file.

        Raises:
            BadInput: The library cannot read the file.
        """
        name = self.name or self.kind
        is_json = self.kind == 'tokenizer.json'
        try:
            (content,) = self.rules
            return HuggingFace(content) if is_json else SentencePiece(base64.b64decode(content))
        except BadInput:
            raise
        except Exception as error:  # noqa: BLE001 (the libraries document no exceptions)
            form = 'Hugging Face tokenizer.json file' if is_json else 'SentencePiece model'
            raise BadInput(_KEY, f'is not a valid {form} ({first_line(error)})', value=name) from None

    @functools.cached_property
    def tokens(self) -> tuple[str, ...]:
        """See `Tokenizer.tokens`."""
        others = {*SKIPPED, *UNKNOWN, self.library.unknown}
        kept = (token for token in sorted(self.library.ids, key=self.library.ids.__getitem__) if token not in others)
        return (RARE, *(BOUNDARY_TOKENS if self.boundary_tokens else ()), *kept)

    def normalize(self, text: str) -> str:
        """See `Tokenizer.normalize`. Returns the text unchanged, because the library normalizes it in `cut`."""
        return text

    def split(self, text: str) -> list[str]:
        """See `Tokenizer.split`. Windows line endings are read as newlines."""
        text = text.replace('\r\n', '\n').removesuffix('\r')  # a line read without its newline may end in `\r`
        return [text] if text.strip() else []

    def cut(self, strings: Sequence[str], known: Collection[str] | None = None) -> list[list[str]]:
        """See `Tokenizer.cut`."""
        parts = (self.library.cut(strings[first : first + _BATCH]) for first in range(0, len(strings), _BATCH))
        unknown = self.library.unknown
        return [[RARE if unknown == token else token for token in tokens] for part in parts for tokens in part]

    def utf8(self, token: str) -> bytes:
        """See `Tokenizer.utf8`. Tokens inside a word have no space after them."""
        library = self.library
        if token in SPECIAL_TOKENS or library.marking == _WORDS:
            return super().utf8(token)
        if library.marking == _BYTES:
            try:
                return to_bytes(token)
            except UnicodeEncodeError:  # an added token, which is spelled literally
                return token.encode()
        if byte := _BYTE.fullmatch(token):
            return bytes.fromhex(byte[1])
        if library.marking == _SPACES:
            return token.replace('▁', ' ').encode()
        if library.marking == _PREFIX:
            inside = token.startswith(library.affix)
            return (token.removeprefix(library.affix) if inside else f' {token}').encode()
        return (f'{token.removesuffix(library.affix)} ' if token.endswith(library.affix) else token).encode()

    def decode(self, tokens: Sequence[str], clean_up: bool = False) -> str:
        """See `Tokenizer.decode`. Boundary tokens become newlines."""
        lines: list[list[int]] = [[]]
        known = {**self.library.ids, RARE: self.library.ids.get(self.library.unknown)}
        for token in tokens:
            if token in BOUNDARY_TOKENS:
                lines.append([])
            elif (number := known.get(token)) is not None:
                lines[-1].append(number)
        return '\n'.join(self.library.decode(ids) for ids in lines if ids)

    def to_hf(self, ids: Mapping[str, int]) -> tokenizers.Tokenizer:
        """Returns a Hugging Face tokenizer with the same tokens under other ids.

        Args:
            ids: The id of each token of the vocabulary.

        Raises:
            BadInput: The tokenizer is a SentencePiece model.
        """
        if not isinstance(self.library, HuggingFace):
            problem = 'is not supported for SentencePiece models, which cannot be written as tokenizer.json'
            raise BadInput('--to', problem, value='hf')
        values = json.loads(json.dumps(self.library.values))
        model = values['model']
        if model.get('type') == 'Unigram':
            scores = {token: score for token, score in model['vocab']}
            # The score of unknown text is 10 below the lowest score.
            lowest, ordered = min(scores.values()), sorted(ids, key=ids.__getitem__)
            model['vocab'] = [(token, scores.get(token, lowest)) for token in ordered]
            model['unk_id'] = ids[RARE]
        else:
            model['vocab'] = dict(ids)
            model['unk_token'] = model.get('unk_token') and RARE
        added = [token for token in values.get('added_tokens') or [] if token['content'] in ids]
        values['added_tokens'] = [{**token, 'id': ids[token['content']]} for token in added]
        return tokenizers.Tokenizer.from_str(json.dumps(values))


def _without_processing(values: dict[str, Any]) -> dict[str, Any]:
    """Removes the rules of a tokenizer.json file that add, drop or randomly sample tokens."""
    model = {key: value for key, value in values['model'].items() if key != 'dropout'}
    return {**values, 'model': model, 'truncation': None, 'padding': None, 'post_processor': None}
