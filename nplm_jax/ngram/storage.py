"""Stores count-based models as safetensors files with a checksum. The files contain only numbers and text.

The metadata contain a JSON description of the model. In it, an object is written as `{"class": NAME, ARGUMENT: ...}`,
and an array as its name in the file. A valid checksum does not prove that the arrays are consistent, so their shapes,
types and sort order are also checked.

Dims: V vocabulary, G classes.
"""

import inspect
import json
import pathlib
from typing import Any

import numpy as np

from nplm_jax.data.mapped_arrays import chunks
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.mixture import Mixture
from nplm_jax.ngram import archives
from nplm_jax.ngram.backoff import BackoffModel
from nplm_jax.ngram.class_ngram import ClassNgram
from nplm_jax.ngram.counts import NgramTable
from nplm_jax.ngram.interpolated import FrequencyBins
from nplm_jax.ngram.quantization import QuantizedArray
from nplm_jax.utils.errors import BadInput, first_line, require
from nplm_jax.utils.untrusted import parse_json

MODEL_FILE = 'model.safetensors'
CLASSES = {x.__name__: x for x in (BackoffModel, ClassNgram, Mixture, FrequencyBins, NgramTable, QuantizedArray)}
_STRUCTURE = 'model'  # the metadata key of this description


def save(model: LanguageModel, path: pathlib.Path) -> None:
    """Writes a model. The classes of the model and of its components must be in CLASSES."""
    structure, arrays = flatten(model)
    archives.write(path, arrays, {_STRUCTURE: json.dumps(structure)})


def load(path: pathlib.Path, vocabulary_size: int) -> LanguageModel:
    """Reads a model written by `save`. The arrays of the model are memory-mapped and read-only.

    Args:
        path: The path of the file.
        vocabulary_size: The size of the run's vocabulary, |V|.

    Raises:
        BadInput: The file is damaged, belongs to another vocabulary, or its arrays do not form a model.
    """
    arrays, metadata = archives.read(path)
    try:
        model = _build(parse_json(path, metadata[_STRUCTURE]), arrays)
        size = _check_model(model)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise BadInput(
            path, f'the file is damaged: the arrays do not form a model ({first_line(error)[:200]})'
        ) from None
    expected = f"must be {vocabulary_size}, the size of the run's vocabulary"
    require(size == vocabulary_size, str(path), size, expected)
    return model


def flatten(model: LanguageModel) -> tuple[Any, dict[str, np.ndarray]]:
    """Returns the JSON description of a model, and its arrays by name; see the module docstring."""
    arrays: dict[str, np.ndarray] = {}
    return _describe(model, '', arrays), arrays


def _describe(value: Any, name: str, arrays: dict[str, np.ndarray]) -> Any:
    """Returns the description of a value and adds its arrays to `arrays`. Shared arrays are added only once."""
    if isinstance(value, np.ndarray):
        for known, array in arrays.items():
            if array is value:
                return known
        arrays[name] = value
        return name
    if isinstance(value, (list, tuple)):
        return [_describe(x, f'{name}.{i}', arrays) for i, x in enumerate(value, start=1)]
    if isinstance(value, (int, np.integer)):
        return int(value)
    kind = type(value).__name__
    if kind not in CLASSES:
        raise TypeError(f'{kind} is not in CLASSES')
    inner = {x: _describe(getattr(value, x), f'{name}.{x}'.strip('.'), arrays) for x in _arguments(kind)}
    return {'class': kind, **inner}


def _build(structure: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Builds a value from its description; the inverse of `_describe`."""
    if isinstance(structure, str):
        return arrays[structure]
    if isinstance(structure, list):
        return [_build(x, arrays) for x in structure]
    if isinstance(structure, dict):
        kind = structure['class']
        return CLASSES[kind](**{x: _build(structure[x], arrays) for x in _arguments(kind)})
    return structure


def _arguments(kind: str) -> list[str]:
    """Returns the constructor arguments of a class, which are also attributes of its instances."""
    return list(inspect.signature(CLASSES[kind]).parameters)


def _check_model(model: Any) -> int:
    """Checks a model from a file and returns |V|. Raises ValueError if its arrays are inconsistent."""
    if isinstance(model, BackoffModel):
        return _check_backoff(model)
    if isinstance(model, ClassNgram):
        num_classes, size = _check_backoff(model.class_ngram), len(model.classes_V)
        _check_vector('classes_V', model.classes_V, 'i', size, 0, num_classes - 1)
        _check_vector('is_unseen_V', model.is_unseen_V, 'b', size)
        _check_vector('log_p_V', model.log_p_V, 'f', size)
        _check_vector('unseen_p_G', model.unseen_p_G, 'f', num_classes)
        return size
    _check(isinstance(model, Mixture) and isinstance(model.bins, FrequencyBins), 'unknown class')
    bins, weights_QxM = model.bins, model.weights_QxM
    size = _check_table(bins.table)
    _check(bins.table.n == 3 and len(model.models) == 4, 'the model is not a mixture of four models with trigram bins')
    _check(all(_check_backoff(part) == size for part in model.models), 'the models have different vocabulary sizes')
    _check_vector('bins', bins.bins, 'i', bins.table.size(2) + 1, 0, bins.num_bins - 1)
    _check_vector('weights', weights_QxM.reshape(-1), 'f', bins.num_bins * 4)
    return size


def _check_backoff(model: Any) -> int:
    """Checks a back-off model and returns its number of words."""
    _check(isinstance(model, BackoffModel), 'not a back-off model')
    size, n = _check_table(model.table), model.n
    _check(1 <= n <= model.table.n, f'{model.table.n} orders of n-grams have {n} orders of probabilities')
    _check(n - 1 <= len(model.log_b) <= model.table.n, f'the model has {len(model.log_b)} orders of back-off weights')
    for name, series in (('log_p', model.log_p), ('log_b', model.log_b)):
        for k, values in enumerate(series, start=1):
            if isinstance(values, QuantizedArray):
                _check_vector(f'codes of {name}.{k}', values.codes, 'u', model.table.size(k), 0, len(values.values) - 1)
                _check_vector(f'values of {name}.{k}', values.values, 'f')
            else:
                _check_vector(f'{name}.{k}', values, 'f', model.table.size(k))
    return size


def _check_table(table: Any) -> int:
    """Checks that n-grams are sorted and distinct and that their contexts exist. Returns the number of words."""
    _check(isinstance(table, NgramTable) and table.n >= 1, 'no n-grams')
    size = table.vocabulary_size
    _check(type(size) is int and len(table.keys[0]) == size >= 1, f'{len(table.keys[0])} words instead of {size!r}')
    for k, keys in enumerate(table.keys, start=1):
        _check(table.size(k - 1) * size < 2**63, f'the n-grams of order {k} cannot be packed')
        _check_vector(f'keys.{k}', keys, 'i')
        before = -1
        for chunk in chunks(keys):
            in_range = before < chunk[0] and chunk[-1] < table.size(k - 1) * size
            _check(in_range and bool((chunk[1:] > chunk[:-1]).all()), f'keys.{k} is not sorted or out of range')
            before = int(chunk[-1])
    return size


def _check_vector(
    name: str, values: Any, kind: str, size: int | None = None, low: float = -np.inf, high: float = np.inf
) -> None:
    """Raises ValueError unless an array is one-dimensional and has the given dtype kind, size and range of values."""
    is_vector = isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind == kind
    _check(is_vector and size in (None, len(values)), f'{name} has the wrong shape or dtype')
    for chunk in chunks(values):
        _check(bool(low <= chunk.min() and chunk.max() <= high), f'{name} has a value out of range or NaN')


def _check(condition: bool, what: str) -> None:
    """Raises ValueError with the message `what` unless the condition holds."""
    if not condition:
        raise ValueError(what)
