"""Two-level softmax: P(w | context) = P(class | context) P(w | class, context), which is exactly normalized.

Each of the H most frequent words (the shortlist) forms its own class. The remaining words, in order of decreasing
frequency, are divided into G classes of L words each. The last class may be smaller.

Dims: V vocabulary, B batch, T = H + G classes.
"""

import dataclasses
from collections.abc import Mapping
from typing import Self

import jax
import jax.numpy as jnp

from nplm_jax import nn
from nplm_jax.config.component import Count, CountOrZero, internal, key
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.outputs import softmax
from nplm_jax.outputs.output_layer import BIAS, ExactSparseLayer, Features, Params, Rows, Tables, View
from nplm_jax.utils.errors import require

MASKED = -1e30  # score of the positions that pad the last class to L words
CLASSES = 'classes'  # name of the parameter that contains the arrays of the G classes: U_GxK, W_GxP and b_G
CLASS_BIAS = 'b_G'


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoLevelSoftmax(ExactSparseLayer):
    """A two-level softmax, which predicts the class of the word and then the word within the class.

    The training loss is exact and reads only the rows of the shortlist and of the target's class.

    Attributes:
        vocabulary_size: The size of the vocabulary, V. Arrays padded for a mesh have more rows.
    """

    num_shortlist: CountOrZero = key(1000, 'number of most frequent words; each forms its own class')
    classes: Count = key(500, 'maximum number of classes into which the other words are divided evenly')
    vocabulary_size: int = internal(0)
    tables = Tables(others=(CLASSES,))

    def over(self, vocabulary: Vocabulary) -> Self:
        """See `OutputLayer.over`. Raises BadInput if the vocabulary has too few words for the shortlist and classes."""
        V = len(vocabulary)
        allowed = f'must be less than {V:,}, the size of the vocabulary'
        require(self.num_shortlist < V, 'output.num_shortlist', self.num_shortlist, allowed)
        allowed = f'must be at most {V - self.num_shortlist:,}, the number of words outside output.num_shortlist'
        require(self.classes <= V - self.num_shortlist, 'output.classes', self.classes, allowed)
        return dataclasses.replace(self, vocabulary_size=V)

    @property
    def class_size(self) -> int:
        """L, the number of words per class."""
        return -(-(self.vocabulary_size - self.num_shortlist) // self.classes)

    @property
    def num_classes(self) -> int:
        """G, the number of non-empty classes, which is at most `output.classes`."""
        return -(-(self.vocabulary_size - self.num_shortlist) // self.class_size)

    def init(
        self, key: jax.Array, keys: Mapping[str, jax.Array], widths: Mapping[str, int], bias_V: jax.Array
    ) -> Params:
        """See `OutputLayer.init`. The bias of a class is the logsumexp of the initial biases of its words."""
        G, L = self.num_classes, self.class_size
        class_keys = jax.random.split(jax.random.fold_in(key, 4), len(widths))
        classes = {
            name.replace('_V', '_G'): nn.uniform(class_key, (G, width), width**-0.5)
            for class_key, (name, width) in zip(class_keys, widths.items())
        }
        tail = bias_V[self.num_shortlist :]
        tail_GL = jnp.pad(tail, (0, G * L - len(tail)), constant_values=MASKED)
        classes[CLASS_BIAS] = jax.nn.logsumexp(tail_GL.reshape(G, L), axis=1)
        return super().init(key, keys, widths, bias_V) | {CLASSES: classes}

    def rows_of(self, targets_B: jax.Array) -> Rows:
        """Returns the indices of the rows of all words in each target's class, and of the shortlist as shared rows.

        If a target is in the shortlist, the rows of an arbitrary class are returned for it, which the loss ignores.
        """
        H, L = self.num_shortlist, self.class_size
        first_B = H + jnp.maximum(targets_B - H, 0) // L * L
        rows_BxL = first_B[:, None] + jnp.arange(L, dtype=jnp.int32)[None, :]
        return Rows(jnp.minimum(rows_BxL, self.vocabulary_size - 1), jnp.arange(H, dtype=jnp.int32))

    def log_probabilities(self, params: Params, features: Features) -> jax.Array:
        """See `OutputLayer.log_probabilities`."""
        V, H, G, L = self.vocabulary_size, self.num_shortlist, self.num_classes, self.class_size
        shortlist = {name: params[name][:H] for name in (*features, BIAS)} | {CLASSES: params[CLASSES]}
        log_top_TxB = softmax.log_softmax(_top_scores(shortlist, features))
        tail = {name: params[name][H:] for name in (*features, BIAS)}
        y_VxB = softmax.scores(tail, features)
        y_GLxB = jnp.pad(y_VxB, ((0, G * L - len(y_VxB)), (0, 0)), constant_values=MASKED)
        within_GxLxB = jax.nn.log_softmax(y_GLxB.reshape(G, L, -1), axis=1)
        tail_GLxB = (within_GxLxB + log_top_TxB[H:, None]).reshape(G * L, -1)
        return jnp.concatenate([log_top_TxB[:H], tail_GLxB[: V - H]]).T

    def nll_of(self, view: View, features: Features, targets_B: jax.Array) -> jax.Array:
        """See `ExactSparseLayer.nll_of`."""
        H, L = self.num_shortlist, self.class_size
        y_top_TxB, y_BxL = _top_scores(view.shared, features), softmax.gathered_scores(view.examples, features)
        class_B, index_B = jnp.divmod(jnp.maximum(targets_B - H, 0), L)
        nll_B = softmax.cross_entropy(y_top_TxB, jnp.where(targets_B < H, targets_B, H + class_B))
        last_B = self.vocabulary_size - 1 - H - class_B * L
        y_BxL = jnp.where(jnp.arange(L)[None, :] <= last_B[:, None], y_BxL, MASKED)
        return nll_B + jnp.where(targets_B < H, 0, softmax.cross_entropy(y_BxL.T, index_B))


def _top_scores(shortlist: Params, features: Features) -> jax.Array:
    """Returns the scores of the T classes, T x B. The first H classes are the words in the shortlist."""
    classes = shortlist[CLASSES]
    names = {name: name.replace('_V', '_G') for name in features} | {BIAS: CLASS_BIAS}
    return softmax.scores({v: jnp.concatenate([shortlist[v], classes[g]]) for v, g in names.items()}, features)
