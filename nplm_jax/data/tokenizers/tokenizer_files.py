"""Saves tokenizers to run folders and loads them."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from nplm_jax.config.registry import component_class
from nplm_jax.data.tokenizers.byte_level import ByteTokenizer
from nplm_jax.data.tokenizers.tokenizer import CONFIG_FILE, RULES_FILE, Tokenizer
from nplm_jax.utils.errors import BadInput
from nplm_jax.utils.io import write_atomically
from nplm_jax.utils.untrusted import read_json

FORMAT = 1
FILES = (CONFIG_FILE, RULES_FILE)


def to_dict(tokenizer: Tokenizer) -> dict[str, Any]:
    """Converts a tokenizer to a JSON-serializable dictionary, from which `from_dict` restores the tokenizer."""
    values = dataclasses.asdict(tokenizer)
    del values['name']  # its name in the config
    return {'format': FORMAT, **values}


def from_dict(values: Mapping[str, Any], name: str) -> Tokenizer:
    """Restores a tokenizer from `to_dict`.

    Args:
        values: The values returned by `to_dict`.
        name: The source of the values, used as the key in error messages.

    Raises:
        BadInput: The values are malformed or from another version.
    """
    if values.get('format') != FORMAT:
        raise BadInput(name, f'has format {values.get("format")!r}; this version reads only format {FORMAT}')
    kind = str(values.get('kind'))
    try:
        made = component_class('corpus.tokens', kind)
    except BadInput as error:
        raise BadInput(name, str(error)) from None
    defaults = {field.name: field.default for field in dataclasses.fields(made)}
    rules: dict[str, Any] = {key: value for key, value in values.items() if key != 'format'}
    for key, value in rules.items():
        if isinstance(value, list) and all(isinstance(part, str) for part in value):
            value = rules[key] = tuple(value)
        if key not in defaults or type(value) is not type(defaults[key]):
            raise BadInput(name, f'{key}={value!r} is not a valid setting for a tokenizer of kind {kind}')
    return made(**rules)


def save(tokenizer: Tokenizer, ids: Mapping[str, int], folder: pathlib.Path) -> None:
    """Writes a tokenizer to a run folder: CONFIG_FILE and, for byte-level tokenizers, RULES_FILE with the token ids."""
    values = to_dict(tokenizer)
    (folder / RULES_FILE).unlink(missing_ok=True)  # may belong to another tokenizer
    if isinstance(tokenizer, ByteTokenizer):
        del values['rules']
        write_atomically(folder / RULES_FILE, tokenizer.to_hf(ids).to_str(pretty=True))
    write_atomically(folder / CONFIG_FILE, json.dumps(values, indent=2) + '\n')


def load(ids: Mapping[str, int], folder: pathlib.Path) -> Tokenizer:
    """Reads a tokenizer written by `save`.

    Args:
        ids: The id of each token in the vocabulary.
        folder: The run's folder.

    Raises:
        BadInput: A file is missing or damaged, or RULES_FILE has different tokens or ids.
    """
    tokenizer = from_dict(read_json(folder / CONFIG_FILE), str(folder / CONFIG_FILE))
    if not isinstance(tokenizer, ByteTokenizer):
        return tokenizer
    values = read_json(folder / RULES_FILE)
    try:
        model = values['model']
        tokenizer = dataclasses.replace(tokenizer, rules=tokenizer.rules_of(model))
        is_same = tokenizer.ids_of(model) == ids and set(tokenizer.tokens) == ids.keys()
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadInput(folder / RULES_FILE, f'does not describe a tokenizer of kind {tokenizer.kind}') from None
    if not is_same:
        raise BadInput(folder / RULES_FILE, "must contain the same tokens as the run's vocabulary")
    return tokenizer
