"""The network and the paper's recipe against its equations, transcribed by hand into float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nplm_jax.config import CorpusSettings, ModelSettings, OptimizerSettings, PaperSettings, Settings, TrainSettings
from nplm_jax.models import nplm
from nplm_jax.training import loop, objective

V = 23
SHAPES = [(4, 3, 5, True), (4, 3, 5, False), (3, 7, 0, True), (2, 2, 3, True)]  # n, m, h, direct


def as_float64(params):
    """C, H, d, U, W, b as float64 arrays; an absent one is zero, which the equations leave without effect."""
    P = params.C_VxM.shape[1] * (_num_context(params))
    zero = {'H': np.zeros((1, P)), 'd': np.zeros(1), 'U': np.zeros((V, 1)), 'W': np.zeros((V, P))}
    given = dict(C=params.C_VxM, H=params.H_KxP, d=params.d_K, U=params.U_VxK, W=params.W_VxP, b=params.b_V)
    return {k: zero[k] if v is None else np.asarray(v, np.float64) for k, v in given.items()}


def _num_context(params):
    wide = params.H_KxP if params.H_KxP is not None else params.W_VxP
    return wide.shape[1] // params.C_VxM.shape[1]


def paper_gradients(theta, context, word):
    """Section 3.2's forward and backward phase for one word: -log P and d(log P)/d(theta)."""
    C, H, d, U, W, b = (theta[k] for k in 'CHdUWb')
    m = C.shape[1]
    x = np.concatenate([C[w] for w in context])
    o = d + H @ x
    a = np.tanh(o)
    y = b + W @ x + U @ a
    p = np.exp(y - y.max())
    p /= p.sum()

    grads = {k: np.zeros_like(v) for k, v in theta.items()}
    dL_da, dL_dx = np.zeros_like(a), np.zeros_like(x)
    for j in range(V):
        dL_dy = (j == word) - p[j]
        grads['b'][j] = dL_dy
        dL_dx += dL_dy * W[j]
        dL_da += dL_dy * U[j]
        grads['W'][j] = dL_dy * x
        grads['U'][j] = dL_dy * a
    dL_do = (1 - a**2) * dL_da
    dL_dx += H.T @ dL_do
    grads['d'] = dL_do
    grads['H'] = np.outer(dL_do, x)
    for k, w in enumerate(context):
        grads['C'][w] += dL_dx[k * m : (k + 1) * m]
    return -np.log(p[word]), grads


def random_params(n, m, h, direct, seed=0):
    params = nplm.init(jax.random.key(seed), ModelSettings(n, m, h, direct), V)
    rng = np.random.default_rng(seed)  # no parameter may be zero, else a term could hide
    return jax.tree.map(lambda w: jnp.asarray(rng.normal(0, 0.5, w.shape), jnp.float32), params)


def assert_close(params, theta, **tolerance):
    for name, leaf in dict(C='C_VxM', H='H_KxP', d='d_K', U='U_VxK', W='W_VxP', b='b_V').items():
        if (found := getattr(params, leaf)) is not None:
            np.testing.assert_allclose(found, theta[name], err_msg=name, **tolerance)


@pytest.mark.parametrize('n,m,h,direct', SHAPES)
def test_gradient_of_the_mean_is_the_papers(n, m, h, direct):
    params = random_params(n, m, h, direct)
    rng = np.random.default_rng(1)
    contexts, words = rng.integers(0, V, (6, n - 1)), rng.integers(0, V, 6)
    contexts[0] = contexts[0, 0]  # one word in every place of a context: its features get several gradients
    decay = 0.03
    (_, (nll, _)), found = jax.value_and_grad(objective.penalised_nll, has_aux=True)(
        params, jnp.asarray(contexts), jnp.asarray(words), decay
    )
    theta = as_float64(params)
    expected = {k: (decay * v if k in 'CHUW' else 0 * v) for k, v in theta.items()}
    total = 0.0
    for context, word in zip(contexts, words):
        one, grads = paper_gradients(theta, context, word)
        total += one / 6
        for k in expected:
            expected[k] = expected[k] - grads[k] / 6
    assert nll == pytest.approx(total, rel=1e-6)
    assert_close(found, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize('n,m,h,direct', SHAPES)
def test_fifty_steps_of_the_papers_recipe(n, m, h, direct):
    paper = PaperSettings(epsilon_0=0.05, r=0.02, decay=0.01)  # larger than the paper's, so that errors show
    settings = Settings(
        'x', CorpusSettings('sentences'), ModelSettings(n, m, h, direct), OptimizerSettings('paper', paper=paper),
        TrainSettings(batch_size=1),
    )  # fmt: skip
    tokens = np.random.default_rng(2).integers(0, V, 60).astype(np.int32)
    order = np.random.default_rng(3).permutation(60)[:50].astype(np.int32)
    state = loop.init_state(settings, V, None, 50)
    theta = as_float64(start := random_params(n, m, h, direct))
    state, nll = loop.train_steps(
        state.replace(params=start), jnp.asarray(tokens), jnp.asarray(order), 0, settings, 50, 50
    )
    expected_nll = []
    for t, position in enumerate(order):
        context = [tokens[position - k] if position >= k else 0 for k in range(1, n)]  # most recent word first
        one, grads = paper_gradients(theta, context, tokens[position])
        expected_nll.append(one)
        epsilon = 0.05 / (1 + 0.02 * t)
        for k in theta if direct else set(theta) - {'W'}:  # an absent W stays zero
            shrink = 0.01 * theta[k] if k in 'CHUW' else 0
            theta[k] = theta[k] + epsilon * (grads[k] - shrink)
    np.testing.assert_allclose(nll, expected_nll, rtol=2e-5)
    assert_close(state.params, theta, rtol=1e-4, atol=1e-6)


def test_a_batch_of_the_papers_recipe_is_the_sum_at_the_same_rate():
    base = Settings('x', CorpusSettings('sentences'), ModelSettings(3, 4, 5, True), OptimizerSettings('paper'))
    tokens = jnp.asarray(np.random.default_rng(4).integers(0, V, 30), jnp.int32)
    order = jnp.arange(2, 9, dtype=jnp.int32)
    settings = Settings(**{**vars(base), 'train': TrainSettings(batch_size=7)})
    start = random_params(3, 4, 5, True)
    state = loop.init_state(settings, V, None, 1).replace(params=start)
    theta = as_float64(start)
    state, _ = loop.train_steps(state, tokens, order, 0, settings, 1, 1)
    moved = {k: np.zeros_like(v) for k, v in theta.items()}
    for position in order:
        _, grads = paper_gradients(theta, [int(tokens[position - k]) for k in (1, 2)], int(tokens[position]))
        for k in theta:
            moved[k] += 1e-3 * (grads[k] - (1e-4 * theta[k] if k in 'CHUW' else 0))
    assert_close(state.params, {k: theta[k] + moved[k] for k in theta}, rtol=1e-5, atol=1e-7)
