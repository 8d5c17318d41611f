"""A .npz gives what NumPy reads, and anything but matrices of floats is refused before it is inflated."""

import io
import time
import tracemalloc
import zipfile

import numpy as np
import pytest

from nplm_jax.apps.decoding import npz
from nplm_jax.utils.errors import BadInput

ARRAYS = {
    'one': np.arange(12, dtype=np.float32).reshape(3, 4),
    'of another order': np.asfortranarray(np.arange(8.0).reshape(4, 2)),
    'half': np.ones((2, 5), np.float16),
    'big-endian': np.arange(6, dtype='>f4').reshape(2, 3),
    'empty': np.zeros((0, 4), np.float32),
    'long': np.random.default_rng(0).normal(size=(300_000, 4)),
}


@pytest.mark.parametrize('save', [np.savez, np.savez_compressed])
def test_what_numpy_writes_is_read(tmp_path, save):
    save(path := tmp_path / 'a.npz', **ARRAYS)
    read = npz.read('x', path)
    assert list(read) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array)


def npy(array):
    np.lib.format.write_array(file := io.BytesIO(), array)
    return file.getvalue()


def refused(tmp_path, members, compression=zipfile.ZIP_DEFLATED):
    """What is said of a .npz with these members; in two seconds and 100 MB of memory."""
    with zipfile.ZipFile(path := tmp_path / 'a.npz', 'w', compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    started = time.process_time()
    with pytest.raises(BadInput) as caught:
        npz.read('x', path)
    assert time.process_time() - started < 2
    tracemalloc.start()
    try:
        with pytest.raises(BadInput):
            npz.read('x', path)
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()
    return str(caught.value)


GOOD = npy(np.zeros((3, 4), np.float32))


@pytest.mark.parametrize(
    'data, why',
    [
        (GOOD.replace(b'(3, 4)', b'(10000000000000, 4)'), '10,000,000,000,000 x 4 numbers declared, another size'),
        (GOOD.replace(b'(3, 4), }', b'(3, 5), }'), '3 x 5 numbers declared, another size stored'),
        (GOOD[:-1], '3 x 4 numbers declared, another size stored'),
        (GOOD + b'x', '3 x 4 numbers declared, another size stored'),
        (GOOD.replace(b"'<f4'", b"'|O'"), 'must be floats, frames x tokens'),
        (GOOD.replace(b'(3, 4)', b'(3, -4)'), 'must be floats, frames x tokens'),
        (GOOD.replace(b'(3, 4)', b'(' * 40), 'must be floats, frames x tokens'),
        (npy(np.zeros((3, 4), int)), 'must be floats, frames x tokens'),
        (npy(np.zeros(3)), 'must be floats, frames x tokens'),
        (npy(np.zeros((3, 4, 5))), 'must be floats, frames x tokens'),
        (npy(np.zeros((3, 4), [('a', 'f4')])), 'must be floats, frames x tokens'),
        (b'', 'must be floats, frames x tokens'),
        (b'\x93NUMPY\x02\0' + b'\xff' * 4 + bytes(10**6), 'must be floats, frames x tokens'),
    ],
)  # fmt: skip
def test_another_array_is_refused(tmp_path, data, why):
    assert why in refused(tmp_path, [('a.npy', data)])


def test_a_bomb_is_refused_before_it_is_inflated(tmp_path):
    bomb = GOOD.replace(b'(3, 4), }      ', b'(20000000, 4), }') + bytes(320_000_000 - 48)
    why = refused(tmp_path, [('a.npy', bomb)])
    assert 'x: its arrays declare 320,000,1' in why and why.endswith('at most for a file of this size')


@pytest.mark.parametrize(
    'members, why',
    [
        ([('a.txt', b'a')], "unexpected file 'a.txt' in the archive"),
        ([('a\n.npy', GOOD)], 'in the archive'),
        ([(f'{i}.npy', b'') for i in range(60_000)], 'cannot be read (it has 60,000 members; 10,000 at most)'),
    ],
)
def test_another_archive_is_refused(tmp_path, members, why):
    assert why in refused(tmp_path, members, zipfile.ZIP_STORED)


@pytest.mark.filterwarnings('ignore:Duplicate name:UserWarning')
def test_two_arrays_of_one_name_and_other_compressions_are_refused(tmp_path):
    assert 'in the archive' in refused(tmp_path, [('a.npy', GOOD), ('a.npy', GOOD)])
    assert 'a: compressed in a way that' in refused(tmp_path, [('a.npy', GOOD)], zipfile.ZIP_LZMA)
