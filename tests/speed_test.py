"""The contestants of experiments/speed do the same updates; what the scripts print is what is committed."""

import jax
import numpy as np
import pytest

from configs import brown
from experiments.speed import contestants

TORCH = ('torch_eager', pytest.param('torch_compile', marks=pytest.mark.slow))


@pytest.fixture(params=['mlp1', 'mlp3', 'mlp9'])  # direct and hidden, direct alone, hidden alone
def problem(request):
    config = brown.get_config(request.param)
    config.model.dropout = 0.0
    config.model.m, config.optimizer.decay = 6, 1e-2
    config.model.h = min(config.model.h, 7)
    return contestants.make_problem(config, V=50, B=16, S=5, turns=3)


def run(name, problem, precision='float32'):
    if name.startswith('torch'):
        pytest.importorskip('torch')
    turn = contestants.find(name)(problem, precision)
    return np.concatenate([turn(), turn()])


@pytest.mark.parametrize('name', ['plain_jax', *TORCH])
def test_every_contestant_does_our_updates(problem, name):
    expected = run('ours', problem)
    assert expected[-1] < expected[0] - 0.05
    np.testing.assert_allclose(run(name, problem), expected, atol=1e-4)
    np.testing.assert_allclose(run(name, problem, 'bfloat16'), expected, atol=5e-2)


def test_the_products_of_an_update_are_counted(problem):
    wanted = problem.config.model
    P, K = (wanted.n - 1) * wanted.m, wanted.h
    assert problem.flops_a_word == 6 * (50 * (K + wanted.direct * P) + K * P)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(problem.params))
