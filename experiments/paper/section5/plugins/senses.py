"""The paper's network with several feature vectors per word, weighted by the context.

x has e_i = sum_s pi_is C_s(w_i) instead of C(w_i), with pi_i = softmax over s of g_s(w_i) . c_i / rms(c_i). Here c_i
is the mean over the other context words of their mean feature vectors, and rms is its root mean square. The division
lets gates learn from the start, when features are small. Only differences between the g_s matter, so the last one is
zero. A row of C holds a word's feature vectors, then its other gates: C_1 ... C_S, g_1 ... g_{S-1}.

Dims: V vocabulary, M features of a sense (m), S senses, N context words, R numbers of a row: (2S - 1) M, B batch.

References:
    The paper's section 5 proposes several points in feature space for a word with several senses.
    Neelakantan et al., Efficient non-parametric estimation of multiple embeddings per word, EMNLP 2014: the sense whose
    centre is nearest to the mean of the context's vectors.
"""

import dataclasses

import jax
import jax.numpy as jnp

from nplm_jax.config.component import Count, key
from nplm_jax.models.body import BodyOutput, State, windows
from nplm_jax.models.nplm import Window
from nplm_jax.nn import Keys, uniform
from nplm_jax.outputs.output_layer import EMBEDDING, Params
from nplm_jax.utils.errors import require


@dataclasses.dataclass(frozen=True, kw_only=True)
class Senses(Window):
    """The window network with several senses per word. With one sense, it is the paper's network."""

    number: Count = key(2, 'number of senses per word, each with a vector of m features')

    def check(self) -> None:
        """See `Component.check`. Also rejects contexts of one word, because they cannot select a sense."""
        require(
            self.number == 1 or self.n > 2,
            'model.n',
            self.n,
            'must be 3 or more, because at least two context words are required',
        )
        super().check()

    def init(self, key: jax.Array, vocabulary_size: int) -> Params:
        """Returns the window's parameters, with C uniform in +-0.1 for all senses and gates."""
        params, key_C = super().init(key, vocabulary_size), jax.random.split(key, 4)[0]
        return params | {EMBEDDING: uniform(key_C, (vocabulary_size, (2 * self.number - 1) * self.m), 0.1)}

    def features(
        self,
        params: Params,
        e_SxLxM: jax.Array,
        state: State,
        keys: Keys | None = None,
        starts_SxL: jax.Array | None = None,
    ) -> BodyOutput:
        """See `Body.features`. Expects rows of C, S x L x R."""
        rows_SxTxNxR = windows(e_SxLxM, self.reach, starts_SxL)
        S, T, N, _ = rows_SxTxNxR.shape
        vectors_BxNxSxM, probs_BxNxS = self.choose(rows_SxTxNxR.reshape(S * T, N, -1))
        chosen_BxNxM = jnp.einsum('bnsm,bns->bnm', vectors_BxNxSxM, probs_BxNxS)
        output = super().features(params, chosen_BxNxM, state, keys)
        return BodyOutput({name: x.reshape(S, T, -1) for name, x in output.features.items()})

    def choose(self, rows_BxNxR: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns the feature vectors of each context word, B x N x S x M, and pi, B x N x S, from the rows of C."""
        (B, N, _), S = rows_BxNxR.shape, self.number
        all_BxNxGxM = rows_BxNxR.reshape(B, N, 2 * S - 1, self.m)
        vectors_BxNxSxM, gates_BxNxGxM = all_BxNxGxM[:, :, :S], all_BxNxGxM[:, :, S:]
        mean_BxNxM = vectors_BxNxSxM.mean(axis=2)
        others_BxNxM = (mean_BxNxM.sum(axis=1, keepdims=True) - mean_BxNxM) / max(N - 1, 1)
        mean_square_BxNx1 = jnp.square(others_BxNxM).mean(axis=2, keepdims=True)
        unit_BxNxM = others_BxNxM * jax.lax.rsqrt(mean_square_BxNx1 + 1e-6)
        scores_BxNxG = jnp.einsum('bngm,bnm->bng', gates_BxNxGxM, unit_BxNxM)
        scores_BxNxS = jnp.pad(scores_BxNxG, ((0, 0), (0, 0), (0, 1)))
        return vectors_BxNxSxM, jax.nn.softmax(scores_BxNxS, axis=2)
