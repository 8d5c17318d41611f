"""A count-based model comes back from its file as it was, whatever its family; a damaged file is refused."""

import hashlib
import io

import numpy as np
import pytest
from fuzz.folders import sealed
from helpers import DATA, default_settings

from nplm_jax.data.corpora import Span
from nplm_jax.models.ngram import archives, factory, kneser_ney, storage
from nplm_jax.models.ngram.mapped import MappedModel
from nplm_jax.utils.errors import BadInput

pytestmark = pytest.mark.filterwarnings('ignore::nplm_jax.models.ngram.kneser_ney.DiscountWarning')
V = len(DATA.vocabulary)


def same_predictions(a, b):
    contexts = np.random.default_rng(0).integers(0, V, (40, 3))
    np.testing.assert_array_equal(a.next_word(contexts), b.next_word(contexts))
    np.testing.assert_array_equal(a.score(DATA.tokens_T, DATA.test), b.score(DATA.tokens_T, DATA.test))
    tokens_T = np.asarray(DATA.tokens_T)
    np.testing.assert_array_equal(a.matched_lengths(tokens_T, DATA.test), b.matched_lengths(tokens_T, DATA.test))
    assert a.n == b.n and type(a) is type(b)


@pytest.mark.parametrize('family', factory.NGRAM_MODELS)
def test_every_family_comes_back_bit_for_bit(family, tmp_path):
    settings = default_settings({'model.family': family, 'model.n': 3, 'ngram.classes': 4})
    model = factory.estimate(settings, DATA, tmp_path)
    same_predictions(storage.load(tmp_path / storage.MODEL_FILE, V), model)


def test_a_mapped_model_comes_back_bit_for_bit(tmp_path):
    inner = kneser_ney.fit_modified(np.asarray(DATA.tokens_T) % 5, Span(0, 200), 3, 5)
    model = MappedModel(inner, np.arange(V) % 7 % 5)
    storage.save(model, tmp_path / 'model.npz')
    same_predictions(storage.load(tmp_path / 'model.npz', V), model)


def test_a_damaged_file_is_refused(tmp_path):
    storage.save(kneser_ney.fit_modified(DATA.tokens_T, DATA.train, 2, V), path := tmp_path / 'model.npz')
    data, rng = path.read_bytes(), np.random.default_rng(0)
    for place in rng.integers(0, len(data), 200):
        # Two bytes, the length of the checksum at the end, are known and therefore not read.
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        if place not in (len(data) - 66, len(data) - 65):
            with pytest.raises(BadInput, match=r'model.npz: damaged \(its checksum is wrong\); delete it'):
                storage.load(path, V)
    for length in (0, 10, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(BadInput, match='damaged'):
            storage.load(path, V)


# Each change is one that a stranger can make, who writes the right checksum under it.
NOT_A_MODEL = {
    'an array is missing': lambda a: a.pop('logp_1') is None or a,
    'an order is missing': lambda a: a.pop('keys_2') is None or a,
    'another kind': lambda a: a | {'kind': np.array('pickle')},
    'no kind': lambda a: a | {'kind': np.array([1, 2])},
    'no size': lambda a: a | {'vocabulary_size': np.arange(3)},
    'n-grams that are not sorted': lambda a: a | {'keys_2': a['keys_2'][::-1].copy()},
    'repeated n-grams': lambda a: a | {'keys_2': np.zeros_like(a['keys_2'])},
    'n-grams below zero': lambda a: a | {'keys_2': a['keys_2'] - a['keys_2'].max()},
    'n-grams without a context': lambda a: a | {'keys_2': a['keys_2'] + V**2},
    'too few words': lambda a: a | {'keys_1': a['keys_1'][:-1]},
    'too few numbers': lambda a: a | {'logp_2': a['logp_2'][:-1]},
    'two axes': lambda a: a | {'logp_2': a['logp_2'][None]},
    'text': lambda a: a | {'logp_2': a['logp_2'].astype('U')},
    'complex numbers': lambda a: a | {'logp_2': a['logp_2'].astype(complex)},
    'not a number': lambda a: a | {'logp_2': np.full_like(a['logp_2'], np.nan)},
    'infinite numbers': lambda a: a | {'logb_1': np.full_like(a['logb_1'], np.inf)},
    'a code without value': lambda a: (
        a | {'logp_2': np.full(len(a['logp_2']), 9, np.uint8), 'values_logp_2': np.zeros(9)}
    ),
    'a thousand arrays': lambda a: a | {f'x{i}': np.zeros(1) for i in range(1000)},
}


@pytest.mark.parametrize('change', NOT_A_MODEL)
def test_arrays_that_are_no_model_are_refused_under_a_right_checksum(change, tmp_path):
    storage.save(kneser_ney.fit_modified(DATA.tokens_T, DATA.train, 2, V), path := tmp_path / 'model.npz')
    archives.write(path, NOT_A_MODEL[change](archives.read(path)))
    with pytest.raises(BadInput, match='model.npz: damaged, '):
        storage.load(path, V)


def test_what_is_no_archive_is_refused_under_a_right_checksum(tmp_path):
    storage.save(kneser_ney.fit_modified(DATA.tokens_T, DATA.train, 2, V), path := tmp_path / 'model.npz')
    data = path.read_bytes()
    header = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({10**15},), }}".encode()
    huge = data.replace(data[data.index(b"{'descr': '<i8'") :][: len(header)], header, 1)
    for content in (b'', b'no archive', b'PK\5\6' + bytes(18), data[1000:], huge):
        path.write_bytes(sealed(content))
        with pytest.raises(BadInput, match='model.npz: (damaged|cannot be read)'):
            storage.load(path, V)


def test_numpy_alone_reads_the_file(tmp_path):
    model = kneser_ney.fit_modified(DATA.tokens_T, DATA.train, 2, V)
    storage.save(model, path := tmp_path / 'model.npz')
    with np.load(path, allow_pickle=False) as file:
        assert str(file['kind']) == 'backoff'
        np.testing.assert_array_equal(file['logp_2'], model.log_p[1])


def test_another_vocabulary_is_refused(tmp_path):
    storage.save(kneser_ney.fit_modified(DATA.tokens_T, DATA.train, 2, V), path := tmp_path / 'model.npz')
    with pytest.raises(BadInput, match=f"={V}: has so many words, and the run's vocabulary {V + 1}"):
        storage.load(path, V + 1)


def test_large_arrays_are_mapped_and_aligned(tmp_path):
    arrays = {'a': np.arange(5), 'name': np.array('text'), 'b': np.arange(6.0).reshape(2, 3), 'none': np.empty(0)}
    archives.write(path := tmp_path / 'a.npz', arrays)
    read = archives.read(path, in_memory=0)
    assert list(read) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].flags.aligned and read[name].dtype == array.dtype
    assert not read['a'].flags.writeable and archives.read(path)['a'].flags.writeable


def test_a_file_of_an_earlier_version_is_read(tmp_path):
    model = kneser_ney.fit_modified(DATA.tokens_T, DATA.train, 2, V)
    np.savez(file := io.BytesIO(), allow_pickle=False, **storage.to_arrays(model))
    digest = hashlib.sha256(file.getvalue()).hexdigest().encode()
    path = tmp_path / 'model.npz'
    path.write_bytes(file.getvalue()[:-2] + len(digest).to_bytes(2, 'little') + digest)
    same_predictions(storage.load(path, V), model)
    np.testing.assert_array_equal(archives.read(path, in_memory=0)['keys_2'], model.table.keys[1])
