"""What the networks' files share."""

import jax
import jax.numpy as jnp
import pytest

from nplm_jax.utils import nn


def test_dropout_zeroes_its_share_and_keeps_the_mean():
    dropped = nn.dropout(jax.random.key(0), jnp.ones((400, 300)), 0.25)
    assert float((dropped == 0).mean()) == pytest.approx(0.25, abs=0.01)
    assert float(dropped.mean()) == pytest.approx(1, abs=0.01)
    assert set(jnp.unique(dropped).tolist()) == {0.0, float(jnp.float32(1) / jnp.float32(0.75))}
