"""Tree softmax: P(w | context) is the product of the probabilities of the decisions on the path from the root to w.

The score y_t of node t is computed from row t of the output matrices and of b. A path takes branch 1 of the node with
probability sigmoid(y_t), and branch 0 otherwise. If a word has several leaves, its probability is the sum over these
leaves. The training loss is exact, and reads only the rows of the nodes on the paths to the target.

Dims: V words, T nodes (rows of the output matrices), R leaves per word and D nodes above a leaf (both maxima), L = R D
nodes above the leaves of a word, N nodes of a level, S = 2N their children, B batch.

References:
    Morin and Bengio, Hierarchical probabilistic neural network language model, AISTATS 2005.
    Mnih and Hinton, A scalable hierarchical distributed language model, NIPS 2008.
"""

import dataclasses
from collections.abc import Mapping
from typing import Self

import jax
import jax.numpy as jnp

from nplm_jax.config.component import internal, key
from nplm_jax.data.vocabulary import Vocabulary
from nplm_jax.outputs import softmax
from nplm_jax.outputs.output_layer import BIAS, EMBEDDING, ExactSparseLayer, Features, Params, Rows, View
from nplm_jax.outputs.word_codes import BUILT_IN, Tree, codes_of, make_tree
from nplm_jax.utils.errors import require


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeSoftmax(ExactSparseLayer):
    """A hierarchical softmax over a binary tree, with a binary decision at each node on the path to a word.

    Attributes:
        nodes: The tree, which `over` builds for a vocabulary. Trees with equal arrays compare equal.
    """

    tree: str = key(
        'huffman',
        'tree over the vocabulary: huffman | random | a file with `word<TAB>code` on each line, codes of 0 and 1',
        file_unless=BUILT_IN,
    )
    nodes: Tree = internal()

    def over(self, vocabulary: Vocabulary) -> Self:
        """See `OutputLayer.over`. Raises BadInput if the codes in the file do not form a tree over the vocabulary."""
        return dataclasses.replace(self, nodes=make_tree(codes_of(vocabulary, self.tree)))

    def num_rows(self, vocabulary_size: int) -> int:
        """See `OutputLayer.num_rows`. Returns the number of nodes or V, whichever is larger."""
        return max(self.nodes.num_nodes, vocabulary_size)

    def init(
        self, key: jax.Array, keys: Mapping[str, jax.Array], widths: Mapping[str, int], bias_V: jax.Array
    ) -> Params:
        """See `OutputLayer.init`. If all features were zero, the initial P(w) would be the softmax of `bias_V`."""
        allowed = 'must be False for output.kind=tree, because output rows represent tree nodes'
        require(EMBEDDING not in widths, 'model.tied', True, allowed)
        signs_VxRxD = self.nodes.signs_VxRxD
        has_leaf_VxR = signs_VxRxD[:, :, 0] != 0
        mass_VxRx1 = (jax.nn.softmax(bias_V)[:, None] / has_leaf_VxR.sum(1, keepdims=True))[:, :, None]
        ones_T, zeros_T = (
            jnp.zeros(self.num_rows(len(bias_V)))
            .at[self.nodes.nodes_VxRxD]
            .add(jnp.where(signs_VxRxD == sign, mass_VxRx1, 0))
            for sign in (1, -1)
        )
        b_T = jnp.where(ones_T > 0, jnp.log(jnp.maximum(ones_T, 1e-30)) - jnp.log(jnp.maximum(zeros_T, 1e-30)), 0)
        return super().init(key, keys, widths, b_T)

    def rows_of(self, targets_B: jax.Array) -> Rows:
        """Returns the indices of the nodes above the leaves of each target, B x L, and no shared rows."""
        rows_BxL = jnp.asarray(self.nodes.nodes_VxRxD)[targets_B].reshape(len(targets_B), -1)
        return Rows(rows_BxL, jnp.zeros(0, jnp.int32))

    def nll_of(self, view: View, features: Features, targets_B: jax.Array) -> jax.Array:
        """See `ExactSparseLayer.nll_of`."""
        signs_BxRxD = jnp.asarray(self.nodes.signs_VxRxD, jnp.float32)[targets_B]
        y_BxRxD = softmax.gathered_scores(view.examples, features).reshape(signs_BxRxD.shape)
        log_p_BxRxD = jnp.where(signs_BxRxD == 0, 0.0, jax.nn.log_sigmoid(signs_BxRxD * y_BxRxD))
        log_p_BxR = jnp.where(signs_BxRxD[:, :, 0] == 0, -jnp.inf, log_p_BxRxD.sum(axis=2))  # -inf for missing leaves
        return -jax.nn.logsumexp(log_p_BxR, axis=1)

    def log_probabilities(self, params: Params, features: Features) -> jax.Array:
        """See `OutputLayer.log_probabilities`. The tree is traversed once, level by level, for all words together."""
        y_TxB = softmax.scores({name: params[name] for name in (*features, BIAS)}, features)
        log_p_NxB, leaves, start = jnp.zeros((1, y_TxB.shape[1])), [], 0
        for is_leaf_S in self.nodes.levels:
            y_NxB = y_TxB[start : start + len(log_p_NxB)]
            start += len(log_p_NxB)
            branches_Nx2xB = jax.nn.log_sigmoid(jnp.stack([-y_NxB, y_NxB], axis=1))
            log_p_SxB = (log_p_NxB[:, None, :] + branches_Nx2xB).reshape(len(is_leaf_S), -1)
            leaves.append(log_p_SxB[is_leaf_S])
            log_p_NxB = log_p_SxB[~is_leaf_S]
        log_p_RVxB = jnp.concatenate([*leaves, jnp.full_like(y_TxB[:1], -jnp.inf)])  # last row: for missing leaves
        return jax.nn.logsumexp(log_p_RVxB[self.nodes.leaves_VxR], axis=1).T
