"""Tests that the softmax over all words is exact and stable for scores of any size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from softmax_reference import named

from nplm_jax.outputs import softmax
from nplm_jax.outputs.full import FullSoftmax
from nplm_jax.outputs.output_layer import BIAS

V = 31


def test_scores_of_ten_thousand_give_finite_losses_and_gradients():
    y_VxB = jnp.zeros((V, 2)).at[4, :].set(1e4).at[:, 1].add(-1e4)
    assert softmax.cross_entropy(y_VxB, jnp.asarray([4, 4])).tolist() == [0, 0]
    assert softmax.cross_entropy(y_VxB, jnp.asarray([5, 5])).tolist() == [1e4, 1e4]
    gradient = jax.grad(lambda y: softmax.cross_entropy(y, jnp.asarray([5, 5])).sum())(y_VxB)
    assert gradient[4].tolist() == [1, 1] and gradient[5].tolist() == [-1, -1]
    assert bool(jnp.isfinite(softmax.log_softmax(y_VxB)).all())


def test_scores_of_gathered_rows_are_those_of_all_words():
    rng = np.random.default_rng(0)
    terms = [(rng.normal(size=(V, d)).astype(np.float32), rng.normal(size=(5, d)).astype(np.float32)) for d in (3, 4)]
    b_V, ids_BxL = rng.normal(size=V).astype(np.float32), rng.integers(0, V, (5, 2))
    y_VxB = softmax.scores(*named(terms, jnp.asarray(b_V)))
    gathered = softmax.gathered_scores(*named([(weights[ids_BxL], x) for weights, x in terms], b_V[ids_BxL]))
    np.testing.assert_allclose(gathered, np.take_along_axis(np.asarray(y_VxB).T, ids_BxL, axis=1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('max_rows', [1, 7, V, 100])
def test_the_nll_does_not_depend_on_how_many_rows_are_scored_at_once(max_rows, monkeypatch):
    monkeypatch.setattr(softmax, 'MAX_SCORES', max_rows * 4)
    rng = np.random.default_rng(0)
    U_VxK, b_V, a_BxK = rng.normal(size=(V, 3)), rng.normal(size=V), rng.normal(size=(4, 3))
    b_V[[0, V - 1]] = 1e4, 1e4 + 1  # the largest scores are in the first and in the last rows
    targets_B = np.array([0, 5, V - 2, V - 1])
    params, features = named([(U_VxK.astype(np.float32), a_BxK.astype(np.float32))], b_V.astype(np.float32))
    nll_B = jax.jit(FullSoftmax().nll)(params, features, targets_B)
    gradient_V = jax.grad(lambda b_V: FullSoftmax().nll(params | {BIAS: b_V}, features, targets_B).sum())(params[BIAS])
    y_BxV = a_BxK @ U_VxK.T + b_V
    expected_B = special.logsumexp(y_BxV, axis=1) - y_BxV[np.arange(4), targets_B]
    np.testing.assert_allclose(nll_B, expected_B, atol=2e-3)  # float32 scores of 1e4
    assert float(nll_B.min()) >= 0
    expected_V = special.softmax(y_BxV, axis=1).sum(axis=0) - np.bincount(targets_B, minlength=V)
    np.testing.assert_allclose(gradient_V, expected_V, atol=2e-3)


def test_scores_that_are_infinite_and_scorers_with_tables_of_their_own_are_as_in_one_pass(monkeypatch):
    class Scaled(softmax.Scorer):
        def scores(self, params, features, precision='float32'):
            return params['scale'][:, None] * super().scores(params, features, precision)

    monkeypatch.setattr(softmax, 'MAX_SCORES', 4)  # one word at a time
    rng, targets_B = np.random.default_rng(0), np.array([1, 5, 7, V - 1])
    U_VxK, a_BxK = (rng.normal(size=(rows, 3)).astype(np.float32) for rows in (V, 4))
    params, features = named([(U_VxK, a_BxK)], np.where(np.arange(V) < 1, -np.inf, 0).astype(np.float32))
    y_BxV = a_BxK @ U_VxK.T + params[BIAS][None, :]
    expected_B = special.logsumexp(y_BxV, axis=1) - y_BxV[np.arange(4), targets_B]
    np.testing.assert_allclose(FullSoftmax().nll(params, features, targets_B), expected_B, rtol=1e-4)
    params |= {'scale': np.full(V, 2.0, np.float32)}
    largest_B = softmax.reduce_words(
        Scaled(), params, features, jnp.zeros(4), lambda largest_B, y_RxB, _: jnp.maximum(largest_B, y_RxB.max(axis=0))
    )
    np.testing.assert_allclose(largest_B, 2 * y_BxV.max(axis=1), rtol=1e-4)
