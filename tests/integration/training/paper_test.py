"""Compares the network and the paper's recipe with a float64 NumPy implementation of the paper's equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_batch, penalised_nll, small_settings, start_training

from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.training import step

V = 23
SHAPES = [(4, 3, 5, True), (4, 3, 5, False), (3, 7, 0, True), (2, 2, 3, True)]  # n, m, h, direct


NAMES = dict(C='C_VxM', H='H_KxP', d='d_K', U='U_VxK', W='W_VxP', b='b_V')


def make_settings(n, m, h, direct, **changes):
    model = {'model.n': n, 'model.m': m, 'model.h': h, 'model.direct': direct, 'model.dropout': 0.0}
    return small_settings({**model, 'optimizer.name': 'paper', **changes})


def as_float64(params, n, m):
    """Returns C, H, d, U, W, b as float64 arrays. Absent parameters are zero, so they have no effect."""
    P = (n - 1) * m
    zero = {'H': np.zeros((1, P)), 'd': np.zeros(1), 'U': np.zeros((V, 1)), 'W': np.zeros((V, P))}
    return {k: np.asarray(params[name], np.float64) if name in params else zero[k] for k, name in NAMES.items()}


def paper_gradients(theta, context, word):
    """Computes the forward and backward phases of section 3.2 for one word: -log P and d(log P)/d(theta).

    context: The previous words in reading order.
    """
    C, H, d, U, W, b = (theta[k] for k in 'CHdUWb')
    m = C.shape[1]
    x = np.concatenate([C[w] for w in context[::-1]])  # the most recent word first
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
    for k, w in enumerate(context[::-1]):
        grads['C'][w] += dL_dx[k * m : (k + 1) * m]
    return -np.log(p[word]), grads


LOSS_AND_GRADIENTS = jax.jit(jax.value_and_grad(penalised_nll, has_aux=True), static_argnums=1)


def random_params(settings, seed=0):
    params = network_from_settings(settings, V).init(jax.random.key(seed))
    rng = np.random.default_rng(seed)  # no parameter may be zero, because this would hide a term
    return jax.tree.map(lambda w: jnp.asarray(rng.normal(0, 0.5, w.shape), jnp.float32), params)


def context_of(tokens, position, n):
    """Returns the words before a position in reading order, padded with the rare-word symbol (0)."""
    return [int(tokens[i]) if i >= 0 else 0 for i in range(position - n + 1, position)]


def assert_close(params, theta, **tolerance):
    for k, name in NAMES.items():
        if name in params:
            np.testing.assert_allclose(params[name], theta[k], err_msg=name, **tolerance)


@pytest.mark.parametrize('n,m,h,direct', SHAPES)
def test_gradient_of_the_mean_is_the_papers(n, m, h, direct):
    params = random_params(settings := make_settings(n, m, h, direct))
    rng = np.random.default_rng(1)
    contexts, words = rng.integers(0, V, (6, n - 1)), rng.integers(0, V, 6)
    contexts[0] = contexts[0, 0]  # the same word in every place of a context, so its features get several gradients
    decay = 0.03
    (_, nll), grads = LOSS_AND_GRADIENTS(params, network_from_settings(settings, V), make_batch(contexts, words), decay)
    theta = as_float64(params, n, m)
    expected = {k: (decay * v if k in 'CHUW' else 0 * v) for k, v in theta.items()}
    total = 0.0
    for context, word in zip(contexts, words):
        nll_of_word, paper_grads = paper_gradients(theta, context, word)
        total += nll_of_word / 6
        for k in expected:
            expected[k] = expected[k] - paper_grads[k] / 6
    assert nll == pytest.approx(total, rel=1e-6)
    assert_close(grads, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize('n,m,h,direct', SHAPES)
def test_fifty_steps_of_the_papers_recipe(n, m, h, direct):
    rates = {'epsilon_0': 0.05, 'r': 0.02, 'decay': 0.01}  # larger than in the paper, which makes errors visible
    changes = {f'optimizer.{key}': value for key, value in rates.items()}
    settings = make_settings(n, m, h, direct, **changes, **{'train.batch_size': 1})
    tokens_T = np.random.default_rng(2).integers(0, V, 60).astype(np.int32)
    positions_T = np.random.default_rng(3).permutation(60)[:50].astype(np.int32)
    theta = as_float64(start := random_params(settings), n, m)
    program, state, inputs = start_training(settings, V, 50, start)
    inputs = inputs.replace(tokens_T=jnp.asarray(tokens_T))
    state, nll_S = step.execute_steps(program, state, jnp.asarray(positions_T), 0, 50, inputs)
    expected_nll = []
    for t, position in enumerate(positions_T):
        nll_of_word, grads = paper_gradients(theta, context_of(tokens_T, position, n), tokens_T[position])
        expected_nll.append(nll_of_word)
        epsilon = 0.05 / (1 + 0.02 * t)
        for k in theta if direct else set(theta) - {'W'}:  # an absent W stays zero
            shrink = 0.01 * theta[k] if k in 'CHUW' else 0
            theta[k] = theta[k] + epsilon * (grads[k] - shrink)
    np.testing.assert_allclose(nll_S, expected_nll, rtol=2e-5)
    assert_close(state.params, theta, rtol=1e-4, atol=1e-6)


def test_a_batch_of_the_papers_recipe_is_the_sum_at_the_same_rate():
    settings = make_settings(3, 4, 5, True, **{'train.batch_size': 7})  # at the paper's rates
    tokens_T = np.random.default_rng(4).integers(0, V, 30).astype(np.int32)
    positions_T = np.arange(2, 9, dtype=np.int32)
    theta = as_float64(start := random_params(settings), 3, 4)
    program, state, inputs = start_training(settings, V, 1, start)
    inputs = inputs.replace(tokens_T=jnp.asarray(tokens_T))
    state, _ = step.execute_steps(program, state, jnp.asarray(positions_T), 0, 1, inputs)
    moved = {k: np.zeros_like(v) for k, v in theta.items()}
    for position in positions_T:
        _, grads = paper_gradients(theta, context_of(tokens_T, position, 3), tokens_T[position])
        for k in theta:
            moved[k] += 1e-3 * (grads[k] - (1e-4 * theta[k] if k in 'CHUW' else 0))
    assert_close(state.params, {k: theta[k] + moved[k] for k in theta}, rtol=1e-5, atol=1e-7)
