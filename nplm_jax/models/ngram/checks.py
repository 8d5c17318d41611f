"""Checks that the arrays of a file form a valid count-based model, which a right checksum does not prove.

An array of another shape or type, or n-grams that are not sorted, would end in a traceback when the model is used.

Dims: V vocabulary, k order.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nplm_jax.models.ngram.backoff import BackoffModel
from nplm_jax.models.ngram.class_ngram import ClassNgram
from nplm_jax.models.ngram.counts import NgramTable
from nplm_jax.models.ngram.interpolated import FrequencyBins, InterpolatedTrigram
from nplm_jax.models.ngram.mapped import MappedModel
from nplm_jax.models.ngram.quantization import QuantizedArray
from nplm_jax.utils.mapped_arrays import parts

_LARGEST = 1e3  # of a logarithm, nats; those of probabilities are 0 or less, those of back-off weights small
_ROUNDING = 1e-6  # of weights that sum to one


def check(condition: bool, what: str) -> None:
    """Raises ValueError, which says what is wrong, unless the condition holds."""
    if not condition:
        raise ValueError(what)


def check_model(model: Any, vocabulary_size: int) -> None:
    """Checks a model that was read from a file. Raises ValueError if its arrays do not fit each other and V."""
    if isinstance(model, BackoffModel):
        _check_backoff(model)
    elif isinstance(model, InterpolatedTrigram):
        _check_interpolated(model)
    elif isinstance(model, ClassNgram):
        check(len(model.classes_V) == vocabulary_size, f'{len(model.classes_V):,} words have a class')
        _check_classes(model)
    elif isinstance(model, MappedModel):
        check(len(model.inner_ids_V) == vocabulary_size, f'inner_ids has {len(model.inner_ids_V):,} words')
        _check_backoff(model.inner)


def check_scalars(arrays: Mapping[str, np.ndarray], kinds: Mapping[str, str]) -> None:
    """Checks that some arrays are single values of a kind of NumPy. Raises ValueError."""
    for name, kind in kinds.items():
        check(name in arrays and arrays[name].shape == () and arrays[name].dtype.kind in kind, f'{name} is no value')


def _check_backoff(model: BackoffModel) -> None:
    check_table(model.table)
    n = len(model.log_p)
    check(1 <= n <= model.table.n, f'{n} orders of probabilities for {model.table.n} of n-grams')
    check(n - 1 <= len(model.log_b) <= model.table.n, f'{len(model.log_b)} orders of back-off weights')
    for name, series in (('logp', model.log_p), ('logb', model.log_b)):
        for k, values in enumerate(series, start=1):
            _check_logarithms(f'{name}_{k}', values, model.table.size(k))


def check_table(table: NgramTable) -> None:
    """Checks the n-grams: sorted, different, each after a context that is there. Raises ValueError."""
    check(table.vocabulary_size >= 1 and table.n >= 1, 'no n-grams')
    for k, keys in enumerate(table.keys, start=1):
        _check_vector(f'keys_{k}', keys, 'i', None)
        check(len(keys) == table.vocabulary_size or k > 1, f'keys_1 has {len(keys):,} words')
        num_keys = table.size(k - 1) * table.vocabulary_size
        check(num_keys < 2**63, f'keys_{k} cannot be packed')
        before = -1
        for part in parts(keys):
            is_sorted = part[0] > before and bool((part[1:] > part[:-1]).all())
            check(is_sorted, f'keys_{k} is not sorted')
            before = int(part[-1])
        check(before < num_keys, f'keys_{k} has an n-gram without its context')


def _check_logarithms(name: str, values: Any, size: int) -> None:
    """Checks the numbers of the n-grams of one order, or the codes that stand for them."""
    if isinstance(values, QuantizedArray):
        _check_vector(f'values_{name}', values.values, 'f', None)
        _check_vector(name, values.codes, 'u', size)
        largest = max((int(part.max()) for part in parts(values.codes)), default=-1)
        check(largest < len(values.values), f'{name} has a code without a value')
        values, size = values.values, len(values.values)
    _check_vector(name, values, 'f', size)
    for part in parts(values):
        check(bool((part < _LARGEST).all()), f'{name} has a number that is no logarithm of a probability')


def _check_interpolated(model: InterpolatedTrigram) -> None:
    bins, weights_QxM = model.bins, model.weights_QxM
    check(isinstance(bins, FrequencyBins) and bins.table.n == 3, 'the bins are not of trigrams')
    assert isinstance(bins, FrequencyBins)
    check(len(model.models) == 4, f'{len(model.models)} components')
    for component in model.models:
        assert isinstance(component, BackoffModel)
        _check_backoff(component)
    _check_vector('bins', bins.bins, 'i', bins.table.size(2) + 1)
    check(int(bins.bins.min()) >= 0 and int(bins.bins.max()) < bins.num_bins, 'bins refers to a missing bin')
    check(weights_QxM.shape == (bins.num_bins, 4) and weights_QxM.dtype == np.float64, 'weights has the wrong shape')
    sums_to_one = np.abs(weights_QxM.sum(1) - 1).max() < _ROUNDING
    check(bool(sums_to_one and weights_QxM.min() >= 0), 'weights do not sum to one')


def _check_classes(model: ClassNgram) -> None:
    V, num_classes = len(model.classes_V), model.class_ngram.table.vocabulary_size
    _check_backoff(model.class_ngram)
    _check_vector('classes_of_words', model.classes_V, 'i', V)
    within = V > 0 and int(model.classes_V.min()) >= 0 and int(model.classes_V.max()) < num_classes
    check(within, 'classes_of_words refers to a missing class')
    _check_vector('is_unseen', model.is_unseen_V, 'b', V)
    _check_logarithms('log_p', model.log_p_V, V)
    _check_vector('unseen_p', model.unseen_p_G, 'f', num_classes)
    check(
        bool(((model.unseen_p_G >= 0) & (model.unseen_p_G <= 1)).all()), 'unseen_p has a number that is no probability'
    )


def _check_vector(name: str, array: np.ndarray, kind: str, size: int | None) -> None:
    """Checks the type and the length of an array with one axis; any length if `size` is None."""
    lengths = {size, len(array)} if array.ndim == 1 else set()
    check(len(lengths - {None}) == 1 and array.dtype.kind in kind, f'{name} has the wrong shape or type')
