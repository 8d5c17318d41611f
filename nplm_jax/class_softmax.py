"""Two-level softmax: P(w | context) = P(class | context) P(w | class, context), exactly normalised.

The H most frequent words are classes of their own; the others are cut, by falling frequency, into G classes of L words
each, the last one of fewer. Dims: V words, B examples, D inputs of a part, T = H + G classes, R = H + B L rows.
"""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp

from nplm_jax import softmax

OUT = -1e30  # score of a place in the last class that no word has


@flax.struct.dataclass
class ClassWeights:
    """Output rows of the G classes of several words, float32. head: H. A word alone in its class has one row only."""

    U_GxK: jax.Array | None
    W_GxP: jax.Array | None
    b_G: jax.Array
    head: int = flax.struct.field(pytree_node=False)

    def size(self, vocabulary_size: int) -> int:
        """L."""
        return -(-(vocabulary_size - self.head) // len(self.b_G))

    @property
    def weights(self) -> list[jax.Array]:
        """As many as the output layer has parts, in their order."""
        return [w for w in (self.U_GxK, self.W_GxP) if w is not None]


def rows(classes: ClassWeights, targets_B: jax.Array, vocabulary_size: int) -> jax.Array:
    """The rows of the words that the loss of these targets needs: the H alone, then each target's class. int32, R."""
    size = classes.size(vocabulary_size)
    first_B = classes.head + jnp.maximum(targets_B - classes.head, 0) // size * size
    of_class_BxL = first_B[:, None] + jnp.arange(size, dtype=jnp.int32)[None, :]
    tail_R = jnp.minimum(of_class_BxL, vocabulary_size - 1).reshape(-1)
    return jnp.concatenate([jnp.arange(classes.head, dtype=jnp.int32), tail_R])


def negative_log_likelihood(
    parts: tuple[softmax.Part, ...], b_R: jax.Array, classes: ClassWeights, targets_B: jax.Array, vocabulary_size: int
) -> jax.Array:
    """-log P(target) of each example from the weights and biases of `rows` alone. Returns: B, nats a word."""
    H, size = classes.head, classes.size(vocabulary_size)
    split = [jax.lax.split(w, (H, len(w) - H)) for w, _ in parts]  # unlike slices, cheap to go back through
    inputs = [x for _, x in parts]
    top_TxB = _top([w for w, _ in split], inputs, b_R[:H], classes)
    in_class_B, place_B = jnp.divmod(jnp.maximum(targets_B - H, 0), size)
    nll_B = softmax.negative_log_likelihood(top_TxB, jnp.where(targets_B < H, targets_B, H + in_class_B))
    shape = len(targets_B), size
    y_BxL = b_R[H:].reshape(shape)
    for (_, weights_BLxD), inputs_BxD in zip(split, inputs):
        y_BxL += jnp.sum(weights_BLxD.reshape(*shape, -1) * inputs_BxD[:, None, :], axis=2)
    last_B = vocabulary_size - 1 - H - in_class_B * size
    y_BxL = jnp.where(jnp.arange(size)[None, :] <= last_B[:, None], y_BxL, OUT)
    return nll_B + jnp.where(targets_B < H, 0, softmax.negative_log_likelihood(y_BxL.T, place_B))


def log_probabilities(parts: tuple[softmax.Part, ...], b_V: jax.Array, classes: ClassWeights) -> jax.Array:
    """log P of all words. Returns: V x B, nats."""
    V, H = len(b_V), classes.head
    G, size = len(classes.b_G), classes.size(V)
    top_TxB = softmax.log_probabilities(_top([w[:H] for w, _ in parts], [x for _, x in parts], b_V[:H], classes))
    y_VxB = softmax.scores(b_V[H:], *((w[H:], x) for w, x in parts))
    y_GLxB = jnp.pad(y_VxB, ((0, G * size - len(y_VxB)), (0, 0)), constant_values=OUT)
    within_GxLxB = jax.nn.log_softmax(y_GLxB.reshape(G, size, -1), axis=1)
    tail_GLxB = (within_GxLxB + top_TxB[H:, None]).reshape(G * size, -1)
    return jnp.concatenate([top_TxB[:H], tail_GLxB[: V - H]])


def _top(heads: list[jax.Array], inputs: list[jax.Array], b_H: jax.Array, classes: ClassWeights) -> jax.Array:
    """Scores of the classes. heads: weights of the words alone, H x D for each part. Returns: T x B."""
    weights = [jnp.concatenate(pair) for pair in zip(heads, classes.weights)]
    return softmax.scores(jnp.concatenate([b_H, classes.b_G]), *zip(weights, inputs))
