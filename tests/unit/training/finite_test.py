"""Tests that non-finite numbers are detected and reported with the update after which they were found."""

import jax.numpy as jnp
import numpy as np
import pytest

from nplm_jax.training import finite
from nplm_jax.utils.errors import NonFiniteError


@pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf])
def test_the_first_array_with_a_number_that_is_not_finite_is_named(bad):
    tree = {'a': jnp.ones(3), 'b': {'c': jnp.asarray([1.0, bad])}, 'd': jnp.asarray(bad), 'e': jnp.arange(3)}
    assert finite.first_non_finite(tree) == 'b.c'
    with pytest.raises(NonFiniteError, match=r'^b\.c .*\b1,234\b'):
        finite.require_finite(tree, 1234)


def test_finite_numbers_integers_and_empty_trees_pass():
    for tree in ({}, {'a': jnp.full(3, 3e38), 'b': jnp.zeros((0, 2)), 'c': jnp.arange(3)}, {'c': jnp.arange(3)}):
        assert finite.first_non_finite(tree) is None
        finite.require_finite(tree, 1)


def test_the_first_loss_that_is_not_finite_is_named_with_its_update():
    finite.require_finite_losses(np.asarray([1.0, 2.0]), before=5)
    with pytest.raises(NonFiniteError, match=r'\b7\b.*\binf\b'):
        finite.require_finite_losses(np.asarray([1.0, np.inf, np.nan]), before=5)
