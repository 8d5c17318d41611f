"""The softmax over all words: exact and stable for scores of any size."""

import jax
import jax.numpy as jnp
import numpy as np
from softmax_reference import named

from nplm_jax.outputs import softmax

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
