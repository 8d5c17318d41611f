"""Tests a permutation whose elements are computed one by one."""

import numpy as np
import pytest

from nplm_jax.data.keyed_permutation import permute


@pytest.mark.parametrize('size', [1, 2, 3, 4, 5, 16, 17, 255, 256, 257, 4099])
def test_every_element_comes_once(size):
    elements = permute(np.arange(size), size, (1, 2))
    assert elements.dtype == np.int64 and np.array_equal(np.sort(elements), np.arange(size))


def test_elements_do_not_depend_on_which_are_asked_for():
    whole = permute(np.arange(10_007), 10_007, (3,))
    np.testing.assert_array_equal(permute(np.array([5, 10_006, 77], np.int32), 10_007, (3,)), whole[[5, 10_006, 77]])


def test_a_run_of_an_earlier_version_goes_on_in_its_order():
    assert permute(np.arange(10), 1000, (3, 1, 4)).tolist() == [318, 882, 178, 940, 298, 676, 796, 908, 287, 745]


def test_keys_give_other_permutations_without_order():
    size = 10_007
    one, two = (permute(np.arange(size), size, (seed, 1, 0)) for seed in (1, 2))
    assert (one == two).sum() < 10 and (one == np.arange(size)).sum() < 10
    # Neighbours are independent: the correlation of 10,007 pairs has a standard deviation of 0.01.
    for order in (one, two):
        assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.04
        assert abs(np.corrcoef(order, np.arange(size))[0, 1]) < 0.04
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.04


@pytest.mark.parametrize('bits', range(4, 12))
def test_halves_are_mixed_whether_the_bits_of_the_size_are_even_or_odd(bits):
    from_lower_half = permute(np.arange(2 ** (bits - 1)), 2**bits, (1,)) < 2 ** (bits - 1)
    assert 0.2 < from_lower_half.mean() < 0.8


def test_large_sizes_need_no_array_of_their_size():
    elements = permute(np.arange(1000) * 10**9, 10**12, (0,))
    assert len(set(elements.tolist())) == 1000 and elements.min() >= 0 and elements.max() < 10**12
    assert abs(elements.mean() / 10**12 - 0.5) < 0.05
