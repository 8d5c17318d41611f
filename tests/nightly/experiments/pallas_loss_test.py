"""The race's kernel for GPUs equals the formulas: interpreted on a CPU, compiled on a GPU; and a CPU can lower it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from softmax_reference import assert_close, named, problem, reference

from configs import brown
from experiments.cost.speed import contestants, pallas_loss
from experiments.cost.speed.problem import make_problem
from nplm_jax.outputs import softmax

LOSSES = jax.jit(jax.value_and_grad(pallas_loss.nll_per_word, (0, 1)), static_argnums=3)
PRECISIONS = pytest.mark.parametrize('precision,tolerance', [('float32', 1e-5), ('bfloat16', 1e-2)])
pytestmark = pytest.mark.filterwarnings('ignore:The Pallas Triton backend is deprecated:DeprecationWarning')


# Odd |V| and batch, two terms; fewer words than a tile, one example, one part.
@pytest.mark.parametrize('V,B,widths', [(251, 13, (7, 12)), (17, 1, (3,))])
@PRECISIONS
def test_loss_and_gradients_equal_the_formulas(V, B, widths, precision, tolerance):
    arguments = problem(V, B, widths)
    assert_close(LOSSES(*arguments, precision), reference(*arguments), tolerance)


@pytest.mark.parametrize('precision,tolerance', [('float32', 1e-5), ('bfloat16', 2e-2)])
def test_scores_of_ten_thousand_stay_finite(precision, tolerance):
    arguments = problem(251, 13, (7, 12), scale=1e4)
    assert float(jnp.abs(softmax.scores(*named(*arguments[:2]))).max()) > 1e4
    assert_close(LOSSES(*arguments, precision), reference(*arguments), tolerance)


def test_splits_of_several_tiles_and_columns_beyond_one_run_add_up(monkeypatch):
    monkeypatch.setattr(pallas_loss, 'COLUMNS', 32)
    monkeypatch.setattr(pallas_loss, 'MULTIPROCESSORS', 6)
    terms, b_V, targets_B = arguments = problem(251, 13, (30, 13))

    def tripled(terms, b_V):
        return 3 * pallas_loss.nll_per_word(terms, b_V, targets_B, 'float32')

    expected = jax.tree.map(lambda x: 3 * x, reference(*arguments))
    assert_close(jax.jit(jax.value_and_grad(tripled, (0, 1)))(terms, b_V), expected, 1e-5)


def test_training_with_it_does_our_updates():
    config = brown.get_config('mlp1')
    config.model.m, config.model.h, config.model.dropout = 6, 7, 0.0
    shared = make_problem(config, V=50, B=16, S=5, turns=1)
    turns = [contestants.find(name)(shared, 'float32') for name in ('ours', 'ours_pallas')]
    np.testing.assert_allclose(*[turn() for turn in turns], atol=1e-4)


@pytest.mark.parametrize('V,widths', [(16_384, (50, 240)), (16_384, (100,)), (17_964, (60, 500))])
@pytest.mark.parametrize('precision', ['float32', 'bfloat16'])
def test_the_networks_of_the_race_lower_to_kernels_without_their_scores(V, widths, precision):
    shape, B = jax.ShapeDtypeStruct, 512
    terms = tuple((shape((V, d), 'float32'), shape((B, d), 'float32')) for d in widths)
    arguments = terms, shape((V,), 'float32'), shape((B,), 'int32'), precision
    hopper = jax.sharding.AbstractDevice('NVIDIA H200', num_cores=None, platform='gpu')
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((1,), ('x',), abstract_device=hopper)):
        text = LOSSES.trace(*arguments).lower(lowering_platforms=('cuda',)).as_text()
    assert text.count('custom_call @__gpu$xla.gpu.triton') == (2 if sum(widths) <= pallas_loss.COLUMNS else 4)
    assert f'tensor<{V}x{B}x' not in text and f'tensor<{B}x{V}x' not in text
