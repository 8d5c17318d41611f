"""Prior knowledge of similar words, as a penalty that draws a word's features towards those of its related words.

R_prior = strength/2 * sum_w |C(w) - m(w)|^2, with m(w) the mean of C over the neighbours of w (`neighbours`). The
gradient treats m as a constant: a rare word is drawn to its frequent neighbours, but the neighbours are not drawn to
the rare word. Dims: V vocabulary, M features per word, L neighbours of a word.

References:
    The paper's section 5, which proposes prior knowledge from WordNet or from parts of speech.
    Yu and Dredze, Improving lexical embeddings with semantic knowledge, ACL 2014.
    Faruqui et al., Retrofitting word vectors to semantic lexicons, NAACL 2015: the same penalty after training.
"""

from typing import Annotated, Any

import jax
import jax.numpy as jnp
import optax

from experiments.paper.section5.plugins import neighbours as neighbours_lib
from experiments.paper.section5.plugins.neighbours import Neighbours
from nplm_jax.config.component import at_least
from nplm_jax.outputs.output_layer import EMBEDDING


def sgd(
    learning_rate: optax.ScalarOrSchedule, neighbours: str = '', strength: Annotated[float, at_least(0)] = 0.0
) -> optax.GradientTransformation:
    """Returns gradient descent on the loss plus R_prior (component `experiments.paper.section5.plugins.prior:sgd`).

    Args:
        learning_rate: The rate, or a schedule.
        neighbours: A file written by `neighbours.save`.
        strength: The factor of R_prior, in the same way as `optimizer.decay` is the factor of R.
    """
    return optax.chain(draw_to_neighbours(neighbours, strength), optax.sgd(learning_rate))


def draw_to_neighbours(file: str, strength: float) -> optax.GradientTransformation:
    """Returns a transformation that adds the gradient of R_prior with respect to C, strength * (C - m).

    It reads the file at the first update.
    """

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        C_VxM = params[EMBEDDING]
        if isinstance(C_VxM, optax.MaskedNode):  # C has another rate, with `optimizer.table_rate`
            return updates, state
        pull_VxM = strength * (C_VxM - neighbour_means(C_VxM, neighbours_lib.load(file)))
        return updates | {EMBEDDING: updates[EMBEDDING] + pull_VxM}, state

    return optax.GradientTransformation(optax.init_empty_state, update)


def neighbour_means(C_VxM: jax.Array, neighbours: Neighbours) -> jax.Array:
    """Returns m, the mean features of each word's neighbours, or its own features if it has none; V x M."""
    m_VxM = jnp.zeros_like(C_VxM)
    for ids_V, weights_V in zip(neighbours.ids_VxL.T, neighbours.weights_VxL.T):  # avoids an array of V x L x M
        m_VxM = m_VxM + weights_V[:, None] * C_VxM[ids_V]
    return m_VxM


def penalty(C_VxM: jax.Array, neighbours: Neighbours, strength: jax.Array | float) -> jax.Array:
    """Computes R_prior as a float32 scalar. Its gradient is strength * (C - m)."""
    m_VxM = jax.lax.stop_gradient(neighbour_means(C_VxM, neighbours))
    return 0.5 * strength * jnp.sum(jnp.square(C_VxM - m_VxM))
