"""Exports the arrays of a model to npz and safetensors files."""

import io
import json
import pathlib

import numpy as np

from nplm_jax.config.settings import Settings, to_dict
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.runs.packing import arrays_of
from nplm_jax.utils.io import write_atomically
from nplm_jax.utils.packages import require_package

WORDS, CONFIG = 'words', 'config'  # keys of the metadata


def write_npz(model: LanguageModel, vocabulary: Vocabulary, settings: Settings, path: pathlib.Path) -> None:
    """Writes an npz file with all arrays, the words in id order (`words`), and the config as JSON (`config`)."""
    texts = {WORDS: np.array(vocabulary.words), CONFIG: np.array(json.dumps(to_dict(settings)))}
    np.savez(file := io.BytesIO(), **arrays_of(model), **texts)  # type: ignore[arg-type]
    write_atomically(path, file.getvalue())


def write_safetensors(model: LanguageModel, vocabulary: Vocabulary, settings: Settings, path: pathlib.Path) -> None:
    """Writes a safetensors file that contains all arrays, and the words and the config as JSON in the metadata.

    Raises:
        BadInput: The package safetensors is not installed.
    """
    safetensors = require_package('safetensors.numpy', 'export')
    tensors = {name: np.ascontiguousarray(array) for name, array in arrays_of(model).items()}
    write_atomically(path, safetensors.save(tensors, metadata(vocabulary, settings)))


def metadata(vocabulary: Vocabulary, settings: Settings) -> dict[str, str]:
    """Returns the words in id order and the config, each as JSON, under the keys WORDS and CONFIG."""
    return {WORDS: json.dumps(vocabulary.words), CONFIG: json.dumps(to_dict(settings))}
