"""Implements a Mogrifier LSTM that recalls the words that followed similar outputs.

Let h_t be the output of the LSTM after word w_t. The output of the network is h_t + A sum_i a_i C(w_i), where i runs
over w_t and the R words before it, as far as they belong to the current line or text. The weights are
a_i = exp(s_i) / (exp(s) + sum_j exp(s_j)), where s is the score of recalling nothing. The score
s_i = 12 sum_k q_k n_k(h_t) n_k(h_{i-1}) / K compares the current output with the output before w_i, from which w_i was
predicted. Here, n(h) = h / sqrt(mean(h^2) + 1e-5), and n(h_{i-1}) = 0 if w_i is the first word. A, q and s are learned.
With weight tying and m = h, A is initially 0.3 I, so that recalling a word raises its score, as in a cache.

Dropout is applied to the inputs of the LSTM and to the sum, but not to the recalled features. In training, words from
earlier updates are recalled with the parameters of those updates, and receive no gradient.

Dims: S streams, T words per stream, M features per word (m), K state size (h), R words in the memory.

References:
    Daniluk et al., Frustratingly short attention spans in neural language modeling, 2017 (attention over the states of
    an LSTM). Grave, Joulin and Usunier, Improving neural language models with a continuous cache, 2017.
"""

import dataclasses
import functools
from typing import Annotated

import jax
import jax.numpy as jnp

from nplm_jax.config.component import between, key
from nplm_jax.models.attention import visible
from nplm_jax.models.body import BodyOutput, State
from nplm_jax.models.mogrifier import Mogrifier
from nplm_jax.nn import Keys, Precision, matmul, uniform
from nplm_jax.outputs.output_layer import Params

_SCALE = 12.0  # the score of an output with itself if q is 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentiveMogrifier(Mogrifier):
    """A Mogrifier LSTM whose output attends to the words that followed similar outputs."""

    memory: Annotated[int, between(1, 4096)] = key(
        256, 'number of words before the last word that the network can recall'
    )

    @property
    def burn_in(self) -> int:
        """See `Body.burn_in`. Twice the memory, because the outputs in the memory also depend on preceding words."""
        return max(super().burn_in, 2 * self.memory)

    def init(self, key: jax.Array, vocabulary_size: int) -> Params:
        """Initializes the LSTM, q to 2, s to 8, and A to 0.3 I if it is tied and m = h, or uniformly in ±1/sqrt(M)."""
        key_A = jax.random.fold_in(key, 3)  # 0 to 2 are the keys of `Recurrent`
        is_aligned = self.tied and self.m == self.h  # h is multiplied by C(w)
        A_MxK = 0.3 * jnp.eye(self.m) if is_aligned else uniform(key_A, (self.m, self.h), self.m**-0.5)
        recall = {'A_MxK': A_MxK, 'q_K': jnp.full(self.h, 2.0), 's_1': jnp.full(1, 8.0)}
        return super().init(key, vocabulary_size) | {'recall': recall}

    def start(self, num_streams: int) -> State:
        """Returns a zero state for each layer, and an empty memory.

        `keys_SxRxK` contains the normalized outputs before the last R words, `values_SxRxM` the features of these
        words, `kept_S` the number of these words that belong to the current line, and `last_SxK` the last normalized
        output.
        """
        return {
            'layers': super().start(num_streams),
            'keys_SxRxK': jnp.zeros((num_streams, self.memory, self.h)),
            'values_SxRxM': jnp.zeros((num_streams, self.memory, self.m)),
            'last_SxK': jnp.zeros((num_streams, self.h)),
            'kept_S': jnp.zeros(num_streams, jnp.int32),
        }

    def features(
        self,
        params: Params,
        e_SxLxM: jax.Array,
        state: State,
        keys: Keys | None = None,
        starts_SxL: jax.Array | None = None,
    ) -> BodyOutput:
        """See `Body.features`. No gradient flows into `state`."""
        h_SxTxK, layers = self.read_layers(params, e_SxLxM, state['layers'], keys, starts_SxL)
        precision, _ = self.types(keys)
        memory = jax.lax.stop_gradient(state)
        recalled_SxTxK, memory = self.recall(params['recall'], h_SxTxK, e_SxLxM, memory, starts_SxL, precision)
        return self.output(params, h_SxTxK + recalled_SxTxK, memory | {'layers': layers}, keys)

    def recall(
        self,
        params: Params,
        h_SxTxK: jax.Array,
        e_SxTxM: jax.Array,
        memory: dict[str, jax.Array],
        starts_SxT: jax.Array | None,
        precision: Precision,
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Attends to the words that followed similar outputs.

        Args:
            params: A, q and s.
            h_SxTxK: The output of the LSTM after each of T words.
            e_SxTxM: The features of these words.
            memory: The state before these words, without `layers`.
            starts_SxT: Whether each word begins a line; see `Batch.starts_SxL`.
            precision: The precision of the factors in matrix products.

        Returns:
            A tuple (recalled, memory) of the recalled sum after each word, S x T x K, and of the state after the last
            word.
        """
        R, T = self.memory, h_SxTxK.shape[1]
        product = jax.vmap(functools.partial(matmul, precision=precision))
        n_SxTxK = _normalize(h_SxTxK)
        keys_SxTxK = jnp.concatenate([memory['last_SxK'][:, None], n_SxTxK[:, :-1]], axis=1)
        if starts_SxT is not None:
            keys_SxTxK = jnp.where(starts_SxT[:, :, None], 0.0, keys_SxTxK)
        queries_SxTxK = n_SxTxK * (_SCALE / self.h * params['q_K'])[None, None]
        # Separate products for the words in the memory, because these words need no gradient.
        scores = [product(queries_SxTxK, keys.swapaxes(1, 2)) for keys in (memory['keys_SxRxK'], keys_SxTxK)]
        seen_SxTxL, kept_S = visible(R, memory['kept_S'], starts_SxT, T)
        scores_SxTxL = jnp.where(seen_SxTxL, jnp.concatenate(scores, axis=2), -jnp.inf)
        nothing_SxTx1 = jnp.broadcast_to(params['s_1'], (*scores_SxTxL.shape[:2], 1))
        a_SxTxL = jax.nn.softmax(jnp.concatenate([scores_SxTxL, nothing_SxTx1], axis=2), axis=2)[:, :, :-1]
        mean_SxTxM = product(a_SxTxL[:, :, :R], memory['values_SxRxM']) + product(a_SxTxL[:, :, R:], e_SxTxM)
        memory = {
            'keys_SxRxK': jnp.concatenate([memory['keys_SxRxK'], keys_SxTxK], axis=1)[:, T:],
            'values_SxRxM': jnp.concatenate([memory['values_SxRxM'], e_SxTxM], axis=1)[:, T:],
            'last_SxK': n_SxTxK[:, -1],
            'kept_S': kept_S,
        }
        return matmul(mean_SxTxM, params['A_MxK'], precision), memory


def _normalize(h_SxTxK: jax.Array) -> jax.Array:
    return h_SxTxK * jax.lax.rsqrt(jnp.mean(h_SxTxK**2, axis=2, keepdims=True) + 1e-5)
