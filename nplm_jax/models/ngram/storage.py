"""Count-based models as files: arrays in NumPy's npz format, nothing but numbers and text, with a checksum."""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nplm_jax.models.language_model import LanguageModel
from nplm_jax.models.mixture import Mixture
from nplm_jax.models.ngram import archives, checks
from nplm_jax.models.ngram.backoff import BackoffModel, Values
from nplm_jax.models.ngram.class_ngram import ClassNgram
from nplm_jax.models.ngram.counts import NgramTable
from nplm_jax.models.ngram.interpolated import FrequencyBins, InterpolatedTrigram
from nplm_jax.models.ngram.mapped import MappedModel
from nplm_jax.models.ngram.quantization import QuantizedArray
from nplm_jax.utils.errors import BadInput, first_line, require

MODEL_FILE = 'model.npz'
_KIND = 'kind'  # the array with the name of the format
_VOCABULARY_SIZE = 'vocabulary_size'

Arrays = Mapping[str, np.ndarray]


class Format(NamedTuple):
    """How a class of models is written as arrays.

    Attributes:
        model_class: The class.
        to_arrays: Returns the arrays of a model.
        from_arrays: Returns the model of arrays.
    """

    model_class: type[LanguageModel]
    to_arrays: Callable[[Any], dict[str, np.ndarray]]
    from_arrays: Callable[[Arrays], LanguageModel]


def save(model: LanguageModel, path: pathlib.Path) -> None:
    """Writes a model.

    Args:
        model: A model of a class in FORMATS.
        path: The file.
    """
    archives.write(path, to_arrays(model))


def to_arrays(model: LanguageModel) -> dict[str, np.ndarray]:
    """Returns the arrays of a model of a class in FORMATS; `kind` names its format."""
    kind = next((name for name, format in FORMATS.items() if type(model) is format.model_class), None)
    if kind is None:
        raise TypeError(f'{type(model).__name__}: FORMATS has no format for this class')
    return {_KIND: np.array(kind), **FORMATS[kind].to_arrays(model)}


def load(path: pathlib.Path, vocabulary_size: int) -> LanguageModel:
    """Reads a model that `save` wrote.

    Args:
        path: The file.
        vocabulary_size: |V| of the run.

    Raises:
        BadInput: The file is damaged, or of another vocabulary, or its arrays are not those of a model.
    """
    arrays = archives.read(path)
    try:
        checks.check_scalars(arrays, {_KIND: 'U', _VOCABULARY_SIZE: 'iu'})
        checks.check(str(arrays[_KIND]) in FORMATS, 'unknown kind of model')
    except ValueError as error:
        raise _not_a_model(path, error) from None
    size = int(arrays[_VOCABULARY_SIZE])
    require(size == vocabulary_size, str(path), size, f"has so many words, and the run's vocabulary {vocabulary_size}")
    try:
        model = FORMATS[str(arrays[_KIND])].from_arrays(arrays)
        checks.check_model(model, size)
    except (BadInput, LookupError, TypeError, ValueError) as error:  # arrays that are missing, or of another form
        raise _not_a_model(path, error) from None
    return model


def _not_a_model(path: pathlib.Path, error: Exception) -> BadInput:
    return BadInput(f'{path}: damaged, its arrays are not those of a model ({first_line(error)[:200]})')


def _table_to_arrays(table: NgramTable) -> dict[str, np.ndarray]:
    keys = {f'keys_{k}': keys for k, keys in enumerate(table.keys, start=1)}
    return {_VOCABULARY_SIZE: np.array(table.vocabulary_size), **keys}


def _table(arrays: Arrays) -> NgramTable:
    return NgramTable(int(arrays[_VOCABULARY_SIZE]), tuple(_series(arrays, 'keys')))


def _series(arrays: Arrays, name: str) -> list[np.ndarray]:
    """Returns the arrays `name_1`, `name_2`, ..."""
    size = sum(key.startswith(f'{name}_') for key in arrays)
    return [arrays[f'{name}_{k}'] for k in range(1, size + 1)]


def _number(name: str, arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
    return {f'{name}_{k}': array for k, array in enumerate(arrays, start=1)}


def _values_to_arrays(name: str, values: Sequence[Values]) -> dict[str, np.ndarray]:
    """Writes quantised numbers as codes, and the values of the codes as another array."""
    arrays = _number(name, [x.codes if isinstance(x, QuantizedArray) else x for x in values])
    values_of_codes = {k: x.values for k, x in enumerate(values, start=1) if isinstance(x, QuantizedArray)}
    return arrays | {f'values_{name}_{k}': x for k, x in values_of_codes.items()}


def _values(arrays: Arrays, name: str) -> list[Values]:
    """Returns the arrays `name_1`, `name_2`, ..., those of codes with their values."""
    values_of_codes = [arrays.get(f'values_{name}_{k}') for k in range(1, len(arrays) + 1)]
    return [x if v is None else QuantizedArray(x, v) for x, v in zip(_series(arrays, name), values_of_codes)]


def _backoff_to_arrays(model: BackoffModel) -> dict[str, np.ndarray]:
    values = {**_values_to_arrays('logp', model.log_p), **_values_to_arrays('logb', model.log_b)}
    return {**_table_to_arrays(model.table), **values}


def _backoff(arrays: Arrays) -> BackoffModel:
    return BackoffModel(_table(arrays), _values(arrays, 'logp'), _values(arrays, 'logb'))


def _interpolated_to_arrays(model: InterpolatedTrigram) -> dict[str, np.ndarray]:
    """Writes the table once; the four components and the bins share it."""
    assert isinstance(model.bins, FrequencyBins)
    arrays = {**_table_to_arrays(model.bins.table), 'bins': model.bins.bins, 'num_bins': np.array(model.bins.num_bins)}
    for i, component in enumerate(model.models):
        assert isinstance(component, BackoffModel)
        arrays |= {**_number(f'logp{i}', component.log_p), **_number(f'logb{i}', component.log_b)}
    return {**arrays, 'weights': model.weights_QxM}


def _interpolated(arrays: Arrays) -> Mixture:
    table, weights_QxM = _table(arrays), arrays['weights']
    parts = (
        BackoffModel(table, _series(arrays, f'logp{i}'), _series(arrays, f'logb{i}'))
        for i in range(weights_QxM.shape[1])
    )
    bins = FrequencyBins(table, arrays['bins'], int(arrays['num_bins']))
    return InterpolatedTrigram(list(parts), weights_QxM, bins)


def _classes_to_arrays(model: ClassNgram) -> dict[str, np.ndarray]:
    classes = {f'classes.{name}': array for name, array in _backoff_to_arrays(model.class_ngram).items()}
    return {
        _VOCABULARY_SIZE: np.array(len(model.classes_V)),
        'classes_of_words': model.classes_V,
        'is_unseen': model.is_unseen_V,
        'log_p': model.log_p_V,
        'unseen_p': model.unseen_p_G,
        **classes,
    }


def _classes(arrays: Arrays) -> ClassNgram:
    inner = _backoff(_part(arrays, 'classes'))
    names = ('classes_of_words', 'is_unseen', 'log_p', 'unseen_p')
    classes_V, is_unseen_V, log_p_V, unseen_p_G = (arrays[name] for name in names)
    return ClassNgram(classes_V, inner, is_unseen_V, log_p_V, unseen_p_G)


def _mapped_to_arrays(model: MappedModel) -> dict[str, np.ndarray]:
    inner = {f'inner.{name}': array for name, array in _backoff_to_arrays(model.inner).items()}
    return {_VOCABULARY_SIZE: np.array(len(model.inner_ids_V)), 'inner_ids': model.inner_ids_V, **inner}


def _mapped(arrays: Arrays) -> MappedModel:
    return MappedModel(_backoff(_part(arrays, 'inner')), arrays['inner_ids'])


def _part(arrays: Arrays, name: str) -> dict[str, np.ndarray]:
    """Returns the arrays of a model inside another."""
    return {key.partition('.')[2]: array for key, array in arrays.items() if key.startswith(f'{name}.')}


FORMATS: dict[str, Format] = {
    'backoff': Format(BackoffModel, _backoff_to_arrays, _backoff),
    'interpolated': Format(InterpolatedTrigram, _interpolated_to_arrays, _interpolated),
    'classes': Format(ClassNgram, _classes_to_arrays, _classes),
    'mapped': Format(MappedModel, _mapped_to_arrays, _mapped),
}
