"""Tests memory-mapped arrays."""

import numpy as np
import pytest

from nplm_jax.data import mapped_arrays


@pytest.fixture
def mapped(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped_arrays, 'CHUNK_SIZE', 7)
    np.random.default_rng(0).integers(0, 5, 100, np.int32).tofile(tmp_path / 'a')
    return np.memmap(tmp_path / 'a', np.int32, 'r')


def test_parts_are_the_array(mapped):
    chunks = list(mapped_arrays.chunks(mapped))
    assert [len(chunk) for chunk in chunks] == [7] * 14 + [2]
    np.testing.assert_array_equal(np.concatenate(chunks), mapped)


def test_counts_are_numpys(mapped):
    np.testing.assert_array_equal(mapped_arrays.bincount(mapped, 6), np.bincount(mapped, minlength=6))
    np.testing.assert_array_equal(mapped_arrays.bincount(np.array(mapped[3:50]), 6), np.bincount(mapped[3:50], None, 6))


def test_a_released_array_reads_as_before(mapped):
    before = np.array(mapped)
    mapped_arrays.release(mapped)
    mapped_arrays.release(mapped[3:])
    np.testing.assert_array_equal(mapped, before)
