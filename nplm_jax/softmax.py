"""The output layer: scores of all words, and their log-probabilities.

Scores are held words x examples: on a CPU both matrix products of the backward pass then run in their fast
orientation (experiments/speed/layout.py measures it).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def scores(b_V: jax.Array, *parts: tuple[jax.Array, jax.Array]) -> jax.Array:
    """y = b + sum of weights @ inputs over `parts`, each (weights_VxD, inputs_BxD): the paper's equation 1.

    Returns: y_VxB, float32.
    """
    y_VxB = sum(weights_VxD @ inputs_BxD.T for weights_VxD, inputs_BxD in parts)
    return b_V[:, None] + y_VxB


def log_probabilities(y_VxB: jax.Array) -> jax.Array:
    """log P(word) = y - log sum exp y, stable for scores of any finite size. Returns: V x B, nats."""
    return jax.nn.log_softmax(y_VxB, axis=0)


def negative_log_likelihood(y_VxB: jax.Array, targets_B: jax.Array) -> jax.Array:
    """-log P(target) of each example. Returns: B, nats a word."""
    picked_B = jnp.take_along_axis(y_VxB, targets_B[None, :], axis=0)[0]
    return jax.nn.logsumexp(y_VxB, axis=0) - picked_B
