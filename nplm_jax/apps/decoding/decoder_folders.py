"""Saves and loads decoders in pyctcdecode's format."""

import dataclasses
import json
import os
import pathlib
import shutil
from collections.abc import Mapping
from typing import Any

from nplm_jax.apps.decoding.ctc_scores import WordScorer, check_strings
from nplm_jax.apps.decoding.labels import Alphabet
from nplm_jax.kenlm import model as kenlm
from nplm_jax.utils.errors import BadInput, require
from nplm_jax.utils.io import write_atomically
from nplm_jax.utils.untrusted import Schema, matches_schema, read_json

ALPHABET, LANGUAGE_MODEL = 'alphabet.json', 'language_model'
_UNIGRAMS, _ATTRS = 'unigrams.txt', 'attrs.json'  # files of language_model/
WEIGHTS = 'alpha', 'beta', 'unk_score_offset', 'score_boundary'  # in the order of WordScorer's arguments


def write(folder: pathlib.Path, alphabet: Alphabet, lm: WordScorer | None) -> None:
    """Saves a decoder in a folder. See `BeamSearchDecoderCTC.save_to_dir`."""
    path, target = lm.model.path if lm else b'', folder / LANGUAGE_MODEL
    if isinstance(path, list):
        raise BadInput('kenlm_model', 'must be a single model, because a mixture cannot be saved', value=path)
    source = pathlib.Path(os.fsdecode(path))
    has_file = lm is None or (bool(path) and source.exists())
    require(has_file, 'kenlm_model', str(source), 'must be a file or the folder of a run')
    is_inside = lm is not None and source.resolve() in (target.resolve(), *target.resolve().parents)
    allowed = f'its subfolder {LANGUAGE_MODEL} must be outside the folder of the model, {source}'
    require(not is_inside, 'filepath', str(folder), allowed)
    is_here = lm is not None and target.resolve() in source.resolve().parents  # the model was loaded from this folder
    if target.exists() and not is_here:  # written by a decoder saved here earlier
        shutil.rmtree(target)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / ALPHABET, json.dumps(dataclasses.asdict(alphabet)))
    if lm is None:
        return
    target.mkdir(exist_ok=True)
    write_atomically(target / _UNIGRAMS, '\n'.join(sorted(lm.words)))
    write_atomically(target / _ATTRS, json.dumps({name: getattr(lm, name) for name in WEIGHTS}))
    if source.is_dir() and not is_here:
        shutil.copytree(source, target / source.name)
    elif not is_here:
        shutil.copy(source, target)


def read(folder: pathlib.Path, unigram_encoding: str) -> tuple[Alphabet, WordScorer | None]:
    """Loads the labels and the language model of a decoder. Raises BadInput if a file is missing or damaged."""
    given = _read_object(folder / ALPHABET, {'labels': (list,), 'is_bpe': (bool,)})
    alphabet = Alphabet(check_strings('labels', given['labels']), given['is_bpe'])
    require('' in alphabet.labels, 'labels', alphabet.labels, "must contain the blank, ''")
    target = folder / LANGUAGE_MODEL
    if not target.is_dir():
        return alphabet, None
    weights = _read_object(target / _ATTRS, dict.fromkeys(WEIGHTS, (int, float, bool)))
    models = [path for path in target.iterdir() if path.name not in (_UNIGRAMS, _ATTRS)]
    require(len(models) == 1, 'filepath', str(target), 'must contain one model besides unigrams.txt and attrs.json')
    unigrams, words = target / _UNIGRAMS, None
    if unigrams.is_file():
        try:
            words = list(filter(None, unigrams.read_text(unigram_encoding).split('\n')))
        except (UnicodeError, LookupError) as error:  # LookupError: Python does not know the encoding
            raise BadInput('unigram_encoding', f'cannot decode {unigrams} ({error})', value=unigram_encoding) from None
    return alphabet, WordScorer(kenlm.Model(models[0]), words, *(weights[name] for name in WEIGHTS))


def _read_object(file: pathlib.Path, schema: Mapping[str, Schema]) -> dict[str, Any]:
    """Reads a JSON object. Raises BadInput if it does not match a schema."""
    found = read_json(file)
    if not matches_schema(found, schema):
        raise BadInput(str(file), f'must have the keys {", ".join(schema)}')
    return found
