"""Two-level softmax: P(w | context) = P(class | context) P(w | class, context), exactly normalised.

The H most frequent words are classes of their own; the others are cut, by falling frequency, into G classes of L words
each, the last one of fewer. Dims: V words, B examples, D inputs of a part, T = H + G classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import flax.struct
import jax
import jax.numpy as jnp

from nplm_jax.outputs import blockwise

OUT = -1e30  # score of a place in the last class that no word has


@flax.struct.dataclass
class ClassWeights:
    """Output rows of the G classes of several words, float32. A word alone in its class has one row only.

    num_shortlist: H. words: |V|, which the rows of U, W and b exceed where they are padded to a mesh.
    """

    U_GxK: jax.Array | None
    W_GxP: jax.Array | None
    b_G: jax.Array
    num_shortlist: int = flax.struct.field(pytree_node=False)
    words: int = flax.struct.field(pytree_node=False)

    @property
    def size(self) -> int:
        """L."""
        return -(-(self.words - self.num_shortlist) // len(self.b_G))

    @property
    def weights(self) -> list[jax.Array]:
        """As many as the output layer has parts, in their order."""
        return [w for w in (self.U_GxK, self.W_GxP) if w is not None]


def rows(classes: ClassWeights, targets_B: jax.Array) -> jax.Array:
    """The rows of the words of each target's class; of any class for a target alone in its own. int32, B x L."""
    size = classes.size
    first_B = classes.num_shortlist + jnp.maximum(targets_B - classes.num_shortlist, 0) // size * size
    of_class_BxL = first_B[:, None] + jnp.arange(size, dtype=jnp.int32)[None, :]
    return jnp.minimum(of_class_BxL, classes.words - 1)


def negative_log_likelihood(
    parts: tuple[blockwise.Part, ...], b_H: jax.Array, classes: ClassWeights, y_BxL: jax.Array, targets_B: jax.Array
) -> jax.Array:
    """-log P(target) of each example. Returns: B, nats a word.

    parts, b_H: the weights of the words alone, each with what it multiplies, and their biases.
    y_BxL: the scores of the words that `rows` names.
    """
    H, size = classes.num_shortlist, classes.size
    top_TxB = _top(parts, b_H, classes)
    in_class_B, place_B = jnp.divmod(jnp.maximum(targets_B - H, 0), size)
    nll_B = blockwise.negative_log_likelihood(top_TxB, jnp.where(targets_B < H, targets_B, H + in_class_B))
    last_B = classes.words - 1 - H - in_class_B * size
    y_BxL = jnp.where(jnp.arange(size)[None, :] <= last_B[:, None], y_BxL, OUT)
    return nll_B + jnp.where(targets_B < H, 0, blockwise.negative_log_likelihood(y_BxL.T, place_B))


def log_probabilities(parts: tuple[blockwise.Part, ...], b_V: jax.Array, classes: ClassWeights) -> jax.Array:
    """log P of all words. Returns: V x B, nats."""
    V, H = classes.words, classes.num_shortlist
    G, size = len(classes.b_G), classes.size
    top_TxB = blockwise.log_probabilities(_top([(w[:H], x) for w, x in parts], b_V[:H], classes))
    y_VxB = blockwise.scores(b_V[H:], *((w[H:], x) for w, x in parts))
    y_GLxB = jnp.pad(y_VxB, ((0, G * size - len(y_VxB)), (0, 0)), constant_values=OUT)
    within_GxLxB = jax.nn.log_softmax(y_GLxB.reshape(G, size, -1), axis=1)
    tail_GLxB = (within_GxLxB + top_TxB[H:, None]).reshape(G * size, -1)
    return jnp.concatenate([top_TxB[:H], tail_GLxB[: V - H]])


def _top(parts: Sequence[blockwise.Part], b_H: jax.Array, classes: ClassWeights) -> jax.Array:
    """Scores of the classes. parts: weights of the words alone, H x D, each with its inputs. Returns: T x B."""
    all_parts = [(jnp.concatenate([w_HxD, w_GxD]), x) for (w_HxD, x), w_GxD in zip(parts, classes.weights)]
    return blockwise.scores(jnp.concatenate([b_H, classes.b_G]), *all_parts)
