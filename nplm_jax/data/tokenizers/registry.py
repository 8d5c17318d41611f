"""Registry of tokenizers by `corpus.tokens`. To add one, write its module in this package and add a line here."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from nplm_jax.config import CorpusSettings
from nplm_jax.data.tokenizers.tokenizer import Tokenizer
from nplm_jax.data.tokenizers.words import WordTokenizer
from nplm_jax.utils import plugins
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import read_json, write_atomically

FILE, FORMAT = 'tokenizer.json', 1
TOKENIZERS: dict[str, type[Tokenizer]] = {
    'words': WordTokenizer,
    'whitespace': WordTokenizer,
}


def from_settings(kind: str, settings: CorpusSettings) -> Tokenizer:
    """Returns the tokenizer of a kind with the `corpus.*` choices that it has. Raises BadInput for an unknown kind."""
    tokenizer_class = _tokenizer_class(kind)
    fields = {field.name for field in dataclasses.fields(tokenizer_class)}
    choices = {key: value for key, value in dataclasses.asdict(settings).items() if key in fields}
    return tokenizer_class(**{**choices, 'kind': kind})


def to_dict(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns a tokenizer as values of JSON, from which `from_dict` makes it again."""
    return {'format': FORMAT, **dataclasses.asdict(tokenizer)}


def from_dict(values: Mapping[str, Any], name: str) -> Tokenizer:
    """Returns the tokenizer that `to_dict` was given.

    Args:
        values: What `to_dict` returned.
        name: The beginning of error messages.

    Raises:
        BadInput: The values are not of that form, or of another version.
    """
    if values.get('format') != FORMAT:
        raise BadInput(f'{name}: format {values.get("format")!r}, this version reads {FORMAT}')
    kind = str(values.get('kind'))
    try:
        tokenizer_class = _tokenizer_class(kind)
    except BadInput as error:
        raise BadInput(f'{name}: {error}') from None
    defaults = {field.name: field.default for field in dataclasses.fields(tokenizer_class)}
    rules: dict[str, Any] = {key: value for key, value in values.items() if key != 'format'}
    for key, value in rules.items():
        value = rules[key] = tuple(map(str, value)) if isinstance(value, list) else value
        if key not in defaults or type(value) is not type(defaults[key]):
            raise BadInput(f'{name}: {key}={value!r} is no rule of a tokenizer of kind {kind}')
    return tokenizer_class(**rules)


def _tokenizer_class(kind: str) -> type[Tokenizer]:
    if plugins.is_path(kind):
        return plugins.load_class('corpus.tokens', kind, Tokenizer)
    allowed = f'must be one of {", ".join(TOKENIZERS)}, or {plugins.IMPORT_PATH}'
    require(kind in TOKENIZERS, 'corpus.tokens', kind, allowed)
    return TOKENIZERS[kind]


def save(tokenizer: Tokenizer, folder: pathlib.Path) -> None:
    """Writes FILE into the folder of a run."""
    write_atomically(folder / FILE, json.dumps(to_dict(tokenizer), indent=2) + '\n')


def load(folder: pathlib.Path) -> Tokenizer:
    """Reads what `save` wrote. Raises BadInput if the file is missing or damaged."""
    return from_dict(read_json(folder / FILE), str(folder / FILE))
