"""Prior knowledge of which words are alike: a penalty that draws the features of each word to those of related words.

R_prior = strength/2 * sum_w |C(w) - m(w)|^2, with m(w) the mean of C over the neighbours of w (`data.neighbours`). The
gradient holds m fixed, as an update of one word does whose neighbours stay: a rare word is drawn to its frequent
neighbours, and they are not drawn to it. Dims: V vocabulary, M features per word, L neighbours of a word.

References:
    The paper's section 5, which proposes prior knowledge from WordNet or from parts of speech.
    Yu and Dredze, Improving lexical embeddings with semantic knowledge, ACL 2014.
    Faruqui et al., Retrofitting word vectors to semantic lexicons, NAACL 2015: the same penalty after training.
"""

import jax
import jax.numpy as jnp

from nplm_jax.data.neighbours import Neighbours


def neighbour_means(C_VxM: jax.Array, neighbours: Neighbours) -> jax.Array:
    """Returns m: the mean features of each word's neighbours, V x M; of a word without neighbours its own."""
    m_VxM = jnp.zeros_like(C_VxM)
    for ids_V, weights_V in zip(neighbours.ids_VxL.T, neighbours.weights_VxL.T):  # V x L x M numbers would be many
        m_VxM = m_VxM + weights_V[:, None] * C_VxM[ids_V]
    return m_VxM


def penalty(C_VxM: jax.Array, neighbours: Neighbours, strength: jax.Array | float) -> jax.Array:
    """Computes R_prior, a float32 scalar. Its gradient is strength * (C - m)."""
    m_VxM = jax.lax.stop_gradient(neighbour_means(C_VxM, neighbours))
    return 0.5 * strength * jnp.sum(jnp.square(C_VxM - m_VxM))


def draw_to_neighbours(C_VxM: jax.Array, neighbours: Neighbours, factor: jax.Array) -> jax.Array:
    """Returns C after updates by gradients of R_prior with the same m: C - m shrinks by a factor.

    Args:
        C_VxM: The features.
        neighbours: The related words.
        factor: The product of 1 - rate * strength over these updates. With 1 nothing changes.
    """
    return C_VxM + (1 - factor) * (neighbour_means(C_VxM, neighbours) - C_VxM)
