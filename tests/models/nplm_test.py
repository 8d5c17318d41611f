import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from nplm_jax.config import ModelSettings
from nplm_jax.models import nplm
from nplm_jax.models.language_model import NeuralLanguageModel
from nplm_jax.outputs import blockwise
from nplm_jax.training import objective

V = 31
SHAPES = [(4, 3, 5, True), (4, 3, 5, False), (3, 7, 0, True), (2, 1, 1, False)]
CONTEXTS = jnp.asarray(np.random.default_rng(0).integers(0, V, (7, 3)), jnp.int32)


def make(n, m, h, direct, bias=None):
    return nplm.init(jax.random.key(3), ModelSettings(n, m, h, direct), V, bias)


@pytest.mark.parametrize('n,m,h,direct', SHAPES)
def test_count_is_the_papers_formula(n, m, h, direct):
    model = ModelSettings(n, m, h, direct)
    assert nplm.count(make(n, m, h, direct)) == model.num_parameters(V)
    if direct:  # section 2: |V|(1 + nm + h) + h(1 + (n-1)m)
        assert model.num_parameters(V) == V * (1 + n * m + h) + h * (1 + (n - 1) * m)


@pytest.mark.parametrize('n,m,h,direct', SHAPES)
def test_probabilities_sum_to_one(n, m, h, direct):
    log_p = nplm.log_probabilities(make(n, m, h, direct), CONTEXTS[:, : n - 1])
    assert log_p.shape == (7, V)
    np.testing.assert_allclose(np.exp(np.asarray(log_p, np.float64)).sum(1), 1, atol=1e-6)


def test_scores_of_ten_thousand_are_no_problem():
    y = jnp.zeros((V, 2)).at[4, :].set(1e4).at[:, 1].add(-1e4)
    assert blockwise.negative_log_likelihood(y, jnp.asarray([4, 4])).tolist() == [0, 0]
    assert blockwise.negative_log_likelihood(y, jnp.asarray([5, 5])).tolist() == [1e4, 1e4]
    gradient = jax.grad(lambda y: blockwise.negative_log_likelihood(y, jnp.asarray([5, 5])).sum())(y)
    assert gradient[4].tolist() == [1, 1] and gradient[5].tolist() == [-1, -1]
    assert bool(jnp.isfinite(blockwise.log_probabilities(y)).all())


@pytest.mark.parametrize('n,m,h,direct', SHAPES)
def test_gradients_against_differences(n, m, h, direct):
    params = make(n, m, h, direct)
    targets = jnp.arange(7)
    check_grads(
        lambda p: objective.penalised_nll(p, CONTEXTS[:, : n - 1], targets, 0.1)[0], (params,), 1, ['rev'], 2e-2, 2e-2
    )


def test_every_context_word_matters_and_its_place_too():
    params = make(4, 3, 5, True)
    base = nplm.log_probabilities(params, CONTEXTS)
    for k in range(3):
        changed = nplm.log_probabilities(params, CONTEXTS.at[:, k].set((CONTEXTS[:, k] + 1) % V))
        assert float(jnp.abs(changed - base).max(1).min()) > 1e-4
    assert float(jnp.abs(nplm.log_probabilities(params, CONTEXTS[:, ::-1]) - base).max()) > 1e-3


def test_unigram_bias_is_where_b_starts():
    bias = np.linspace(-3, 0, V).astype(np.float32)
    assert make(3, 2, 4, False, bias).b_V.tolist() == bias.tolist()
    assert not make(3, 2, 4, False).b_V.any()


def test_regulariser_spares_the_biases():
    params = jax.tree.map(jnp.ones_like, make(4, 3, 5, True))
    assert float(objective.regulariser(params, 2.0)) == V * 3 + 5 * 9 + V * 5 + V * 9
    gradient = jax.grad(objective.regulariser)(params, 0.25)
    assert not gradient.b_V.any() and not gradient.d_K.any()
    assert (gradient.C_VxM == 0.25).all() and (gradient.W_VxP == 0.25).all()


def test_dropout_zeroes_its_share_and_keeps_the_mean():
    values = jnp.ones((400, 300))
    dropped = nplm.drop(jax.random.key(0), values, 0.25)
    assert float((dropped == 0).mean()) == pytest.approx(0.25, abs=0.01)
    assert float(dropped.mean()) == pytest.approx(1, abs=0.01)
    params = make(4, 3, 5, True)
    kept = nplm.output_parts(params, CONTEXTS)
    without_key = nplm.output_parts(params, CONTEXTS, 0.5)
    assert all((x == y).all() for (_, x), (_, y) in zip(kept, without_key, strict=True))
    dropped = nplm.output_parts(
        params.replace(H_KxP=jnp.zeros_like(params.H_KxP), d_K=jnp.ones(5)), CONTEXTS, 0.5, jax.random.key(1)
    )
    for _, inputs in dropped:  # hidden units and features are both dropped
        assert 0 < float((inputs == 0).mean()) < 1


def test_next_word_takes_contexts_of_any_length_in_reading_order():
    params = make(4, 3, 5, True)
    model = NeuralLanguageModel(params, 4)
    reading = np.asarray(CONTEXTS[:, ::-1])
    expected = nplm.log_probabilities(params, CONTEXTS)
    np.testing.assert_allclose(model.next_word(reading), expected, rtol=1e-6)  # jit may round otherwise
    longer = np.concatenate([np.full((7, 2), 9), reading], axis=1)
    np.testing.assert_array_equal(model.next_word(longer), model.next_word(reading))
    padded = np.concatenate([np.zeros((7, 2), int), reading[:, 2:]], axis=1)
    np.testing.assert_array_equal(model.next_word(reading[:, 2:]), model.next_word(padded))
