"""Prior knowledge of which words are alike: a penalty that draws the features of each word to those of related words.

R_prior = strength/2 * sum_w |C(w) - m(w)|^2, with m(w) the mean of C over the neighbours of w (`data.neighbours`). The
gradient holds m fixed, as an update of one word does whose neighbours stay: a rare word is drawn to its frequent
neighbours, and they are not drawn to it. Dims: V vocabulary, M features per word, L neighbours of a word.

References:
    The paper's section 5, which proposes prior knowledge from WordNet or from parts of speech.
    Yu and Dredze, Improving lexical embeddings with semantic knowledge, ACL 2014.
    Faruqui et al., Retrofitting word vectors to semantic lexicons, NAACL 2015: the same penalty after training.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from nplm_jax.data.neighbours import Neighbours
from nplm_jax.outputs.output_layer import EMBEDDING


def neighbour_means(C_VxM: jax.Array, neighbours: Neighbours) -> jax.Array:
    """Returns m: the mean features of each word's neighbours, V x M; of a word without neighbours its own."""
    m_VxM = jnp.zeros_like(C_VxM)
    for ids_V, weights_V in zip(neighbours.ids_VxL.T, neighbours.weights_VxL.T):  # V x L x M numbers would be many
        m_VxM = m_VxM + weights_V[:, None] * C_VxM[ids_V]
    return m_VxM


def draw_to_neighbours() -> optax.GradientTransformationExtraArgs:
    """Adds the gradient of R_prior with respect to C: strength * (C - m)."""

    def update(
        updates: Any, state: Any, params: Any, *, hyperparameters: Any, neighbours: Neighbours, **_: Any
    ) -> tuple[Any, Any]:
        C_VxM, strength = params[EMBEDDING], hyperparameters['prior.strength']
        return updates | {
            EMBEDDING: updates[EMBEDDING] + strength * (C_VxM - neighbour_means(C_VxM, neighbours))
        }, state

    return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)
