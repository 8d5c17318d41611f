"""Tests that count-based models are read back from their files unchanged, and that damaged files are rejected."""

import json

import numpy as np
import pytest
from helpers import DATA, ESTIMATED, default_settings, refuses

from nplm_jax.data.stream import RARE, Span
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.ngram import archives, class_ngram, interpolated, kneser_ney, storage
from nplm_jax.ngram.counts import count
from nplm_jax.runs import estimation
from tests.nightly.fuzz.folders import sealed

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.ngram.kneser_ney.DiscountWarning')
V = len(DATA.vocabulary)


def same_predictions(a, b):
    contexts = np.random.default_rng(0).integers(0, V, (40, 3))
    np.testing.assert_array_equal(a.next_word(contexts), b.next_word(contexts))
    np.testing.assert_array_equal(a.score(DATA.tokens_T, DATA.test), b.score(DATA.tokens_T, DATA.test))
    tokens_T = np.asarray(DATA.tokens_T)
    np.testing.assert_array_equal(a.matched_lengths(tokens_T, DATA.test), b.matched_lengths(tokens_T, DATA.test))
    assert a.n == b.n and type(a) is type(b)


@pytest.mark.parametrize('family', ESTIMATED)
def test_every_family_comes_back_bit_for_bit(family, tmp_path):
    settings = default_settings({'model.family': family, 'model.n': 3, 'model.classes': 4})
    model = estimation.estimate(settings, DATA, tmp_path)
    storage.save(model, path := tmp_path / storage.MODEL_FILE)
    same_predictions(storage.load(path, V), model)


def test_a_model_over_the_words_of_another_vocabulary_comes_back_bit_for_bit(tmp_path):
    inner = kneser_ney.fit_modified(count(np.asarray(DATA.tokens_T) % 5, Span(0, 200), 3, 5))
    words = Vocabulary((RARE, *'abcd'), (0,) * 5)
    model = class_ngram.over_vocabulary(inner, words, Vocabulary((RARE, 'd', 'b', *map(str, range(V - 3))), (0,) * V))
    storage.save(model, path := tmp_path / storage.MODEL_FILE)
    same_predictions(storage.load(path, V), model)


def test_a_damaged_file_is_refused(tmp_path):
    storage.save(kneser_ney.fit_modified(count(DATA.tokens_T, DATA.train, 2, V)), path := tmp_path / storage.MODEL_FILE)
    data, rng = path.read_bytes(), np.random.default_rng(0)
    for place in rng.integers(0, len(data), 200):
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with refuses('model.safetensors'):
            storage.load(path, V)
    for length in (0, 10, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with refuses('model.safetensors'):
            storage.load(path, V)


# An attacker could make each of these changes and also write the right checksum.
NOT_ARRAYS = {
    'an array is missing': lambda a: a.pop('log_p.1') is None or a,
    'an order is missing': lambda a: a.pop('table.keys.2') is None or a,
    'n-grams that are not sorted': lambda a: a | {'table.keys.2': a['table.keys.2'][::-1]},
    'repeated n-grams': lambda a: a | {'table.keys.2': np.zeros_like(a['table.keys.2'])},
    'n-grams below zero': lambda a: a | {'table.keys.2': a['table.keys.2'] - a['table.keys.2'].max()},
    'n-grams without a context': lambda a: a | {'table.keys.2': a['table.keys.2'] + V**2},
    'too few words': lambda a: a | {'table.keys.1': a['table.keys.1'][:-1]},
    'too few numbers': lambda a: a | {'log_p.2': a['log_p.2'][:-1]},
    'two axes': lambda a: a | {'log_p.2': a['log_p.2'][None]},
    'integers': lambda a: a | {'log_p.2': a['log_p.2'].astype(int)},
    'not a number': lambda a: a | {'log_p.2': np.full_like(a['log_p.2'], np.nan)},
}
NOT_A_STRUCTURE = {
    'another class': {'class': 'pathlib.Path'},
    'no class': {'table': 'table.keys.1'},
    'a number': 3,
    'a part': {'class': 'NgramTable', 'vocabulary_size': V, 'keys': ['table.keys.1']},
    'missing arguments': {'class': 'BackoffModel', 'log_p': ['log_p.1'], 'log_b': []},
    'numbers for arrays': {'class': 'BackoffModel', 'table': 1, 'log_p': [2], 'log_b': 3},
    'models without words': {'class': 'Mixture', 'models': [], 'weights_QxM': 'log_p.1', 'bins': 'log_p.2'},
    'a code without value': {
        'class': 'BackoffModel',
        'table': {'class': 'NgramTable', 'vocabulary_size': V, 'keys': ['table.keys.1', 'table.keys.2']},
        'log_p': ['log_p.1', {'class': 'QuantizedArray', 'codes': 'codes', 'values': 'values'}],
        'log_b': ['log_b.1'],
    },
}


@pytest.fixture
def saved(tmp_path):
    storage.save(kneser_ney.fit_modified(count(DATA.tokens_T, DATA.train, 2, V)), path := tmp_path / storage.MODEL_FILE)
    return path


@pytest.mark.parametrize('change', NOT_ARRAYS)
def test_arrays_that_are_no_model_are_refused_under_a_right_checksum(change, saved):
    arrays, metadata = archives.read(saved)
    archives.write(saved, NOT_ARRAYS[change](arrays), metadata)
    with refuses('model.safetensors'):
        storage.load(saved, V)


@pytest.mark.parametrize('structure', NOT_A_STRUCTURE)
def test_a_structure_that_is_no_model_is_refused_under_a_right_checksum(structure, saved):
    arrays, _ = archives.read(saved)
    arrays |= {'codes': np.full(len(arrays['log_p.2']), 9, np.uint8), 'values': np.zeros(9)}
    archives.write(saved, arrays, {'model': json.dumps(NOT_A_STRUCTURE[structure])})
    with refuses('model.safetensors'):
        storage.load(saved, V)


@pytest.mark.parametrize(
    'entry',
    [
        {},
        {'dtype': 'F64', 'shape': [10**15], 'data_offsets': [0, 8 * 10**15]},
        {'dtype': 'F64', 'shape': [1], 'data_offsets': [0, 7]},
        {'dtype': 'O', 'shape': [1], 'data_offsets': [0, 8]},
        {'dtype': ['F64'], 'shape': [1], 'data_offsets': [0, 8]},
        {'dtype': 'F64', 'shape': 'x', 'data_offsets': [0, 8]},
        {'dtype': 'F64', 'shape': [1], 'data_offsets': [0, 1e300]},
        {'dtype': 'F64', 'shape': [1], 'data_offsets': 5},
        ['F64', [1], [0, 8]],
        None,
    ],
)
def test_a_malformed_entry_of_the_header_is_refused_under_a_right_checksum(entry, saved):
    saved.write_bytes(sealed(saved.read_bytes(), {'x': entry}))
    with refuses('model.safetensors'):
        storage.load(saved, V)


@pytest.mark.parametrize(
    'content', [b'', b'no arrays', bytes(8), b'\xff' * 100, b'\x02' + bytes(7) + b'{}', b'[' * 10**5]
)
def test_what_holds_no_arrays_is_refused(content, tmp_path):
    (path := tmp_path / storage.MODEL_FILE).write_bytes(content)
    with refuses('model.safetensors'):
        storage.load(path, V)


def test_the_package_safetensors_reads_the_file(tmp_path):
    safetensors = pytest.importorskip('safetensors.numpy')
    model = kneser_ney.fit_modified(count(DATA.tokens_T, DATA.train, 2, V))
    storage.save(model, path := tmp_path / storage.MODEL_FILE)
    arrays = safetensors.load_file(path)
    assert set(arrays) == {'table.keys.1', 'table.keys.2', 'log_p.1', 'log_p.2', 'log_b.1'}
    np.testing.assert_array_equal(arrays['log_p.2'], model.log_p[1])


def test_another_vocabulary_is_refused(tmp_path):
    storage.save(kneser_ney.fit_modified(count(DATA.tokens_T, DATA.train, 2, V)), path := tmp_path / storage.MODEL_FILE)
    with refuses('model.safetensors'):
        storage.load(path, V + 1)


def test_arrays_are_mapped_and_aligned(tmp_path):
    arrays = {
        'codes': np.arange(5, dtype=np.uint8),
        'a': np.arange(5),
        'b': np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        'none': np.empty(0),
        'bool': np.array([True, False, True]),
        'c': np.arange(3, dtype=np.int32),
    }
    archives.write(path := tmp_path / 'a', arrays, {'key': 'text'})
    read, metadata = archives.read(path)
    assert set(read) == set(arrays) and metadata == {'key': 'text'}
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].flags.aligned and not read[name].flags.writeable and read[name].dtype == array.dtype


def test_an_array_that_a_model_has_several_times_is_written_once(tmp_path):
    model = interpolated.fit(DATA.tokens_T, DATA.train, DATA.valid, V)
    arrays = storage.flatten(model)[1]
    assert sum('keys.3' in name for name in arrays) == 1
