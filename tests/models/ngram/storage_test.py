"""A count-based model comes back from its file as it was, whatever its family; a damaged file is refused."""

import hashlib
import io

import numpy as np
import pytest
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
