"""Defines test problems for losses over all words, with float64 reference solutions computed by the formulas."""

import jax
import jax.numpy as jnp
import numpy as np


def reference(terms, b_V, targets_B):
    """Returns the mean NLL and its gradients, computed by the formulas in float64 NumPy."""
    terms = [(np.float64(w), np.float64(x)) for w, x in terms]
    y_BxV = sum(x @ w.T for w, x in terms) + np.float64(b_V)
    rows = np.arange(len(targets_B)), np.asarray(targets_B)
    largest = y_BxV.max(1, keepdims=True)
    log_p = y_BxV - largest - np.log(np.exp(y_BxV - largest).sum(1, keepdims=True))
    g_BxV = np.exp(log_p)
    g_BxV[rows] -= 1
    g_BxV /= len(targets_B)
    return -log_p[rows].mean(), (tuple((g_BxV.T @ x, g_BxV @ w) for w, x in terms), g_BxV.sum(0))


def named(terms, b_V):
    """Returns the arguments of `softmax.scores` for pairs of weights and inputs."""
    params = {f'{i}_VxD': weights for i, (weights, _) in enumerate(terms)} | {'b_V': b_V}
    return params, {f'{i}_VxD': inputs for i, (_, inputs) in enumerate(terms)}


def problem(V, B, widths, scale=1.0, seed=0):
    """Returns random terms, biases and targets."""
    random = np.random.default_rng(seed)

    def normal(*shape):
        return jnp.asarray(random.normal(size=shape), jnp.float32)

    terms = tuple((scale * d**-0.5 * normal(V, d), normal(B, d)) for d in widths)
    return terms, normal(V), jnp.asarray(random.integers(0, V, B), jnp.int32)


def assert_close(actual, expected, tolerance):
    """Asserts that each array is within `tolerance` of its largest element."""
    for ours, theirs in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert ours.dtype == jnp.float32 and ours.shape == np.shape(theirs)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * np.abs(theirs).max())
