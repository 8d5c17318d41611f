"""Implements a Mogrifier LSTM that recalls the words that followed similar states.

Let h_t be the output of the LSTM after word w_t. The output of the network is h_t + V sum_i a_i C(w_i), where i runs
over the R words before w_t and w_t itself. The weights a_i = exp(s_i) / (exp(s) + sum_j exp(s_j)) come from the scores
s_i = 12 sum_k q_k n_k(h_t) n_k(h_{i-1}) / K, where n(h) = h / sqrt(mean(h^2) + 1e-5). V, q and s are learned. The
scores compare the current output with the output before w_i, from which w_i was predicted. With weight tying, V is
initially a multiple of the identity. The network then starts as a cache, which raises the probabilities of words that
followed similar outputs.

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
from nplm_jax.models.body import BodyOutput, State
from nplm_jax.models.mogrifier import Mogrifier
from nplm_jax.models.transformer import visible
from nplm_jax.nn import Keys, Precision, matmul, uniform
from nplm_jax.outputs.output_layer import Params

_SCALE = 12.0  # of the scores; with q = 1, the score of an output with itself


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentiveMogrifier(Mogrifier):
    """A Mogrifier LSTM whose output attends to the words that followed similar outputs."""

    memory: Annotated[int, between(1, 4096)] = key(256, 'number of previous words that the network can recall')

    def init(self, key: jax.Array, vocabulary_size: int) -> Params:
        """Initializes the LSTM, q to 2, s to 8, and V to 0.3 I if h is not projected, or uniformly in ±1/sqrt(M)."""
        shape, key_V = (self.m, self.h), jax.random.fold_in(key, 1)
        is_aligned = self.tied and not self.is_projected  # C(w) is multiplied by h
        V_MxK = 0.3 * jnp.eye(self.m) if is_aligned else uniform(key_V, shape, self.m**-0.5)
        recall = {'V_MxK': V_MxK, 'q_K': jnp.full(self.h, 2.0), 's_1': jnp.full(1, 8.0)}
        return super().init(key, vocabulary_size) | {'recall': recall}

    def start(self, num_streams: int) -> State:
        """Returns a zero state for each layer, and an empty memory.

        `before_SxRxK` contains the outputs before the last R words, `e_SxRxM` the features of these words, `h_SxK` the
        last output, and `kept_S` the number of words in the memory.
        """
        return {
            'layers': super().start(num_streams),
            'before_SxRxK': jnp.zeros((num_streams, self.memory, self.h)),
            'e_SxRxM': jnp.zeros((num_streams, self.memory, self.m)),
            'h_SxK': jnp.zeros((num_streams, self.h)),
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
            params: V, q and s.
            h_SxTxK: The output of the LSTM after each of T words.
            e_SxTxM: The features of these words.
            memory: The state before these words, without `layers`.
            starts_SxT: Whether each word begins a line; see `Batch.starts_SxL`.
            precision: The precision of the factors in matrix products.

        Returns:
            A tuple (r, memory) of r after each word, S x T x K, and of the state after the last word.
        """
        R, T = self.memory, h_SxTxK.shape[1]
        product = jax.vmap(functools.partial(matmul, precision=precision))
        n_SxTxK = _normalize(h_SxTxK)
        before_SxTxK = jnp.concatenate([memory['h_SxK'][:, None], n_SxTxK[:, :-1]], axis=1)
        if starts_SxT is not None:
            before_SxTxK = jnp.where(starts_SxT[:, :, None], 0.0, before_SxTxK)
        seen_SxTxL, kept_S = visible(R, memory['kept_S'], starts_SxT, T)
        query_SxTxK = n_SxTxK * (_SCALE / self.h * params['q_K'])[None, None]
        pairs = (memory['before_SxRxK'], memory['e_SxRxM']), (before_SxTxK, e_SxTxM)
        scores = [product(query_SxTxK, before_SxLxK.swapaxes(1, 2)) for before_SxLxK, _ in pairs]
        scores_SxTxL = jnp.where(seen_SxTxL, jnp.concatenate(scores, axis=2), -jnp.inf)
        nothing_SxTx1 = jnp.broadcast_to(params['s_1'], (*scores_SxTxL.shape[:2], 1))
        a_SxTxL = jax.nn.softmax(jnp.concatenate([nothing_SxTx1, scores_SxTxL], axis=2), axis=2)[:, :, 1:]
        mean_SxTxM = product(a_SxTxL[:, :, :R], memory['e_SxRxM']) + product(a_SxTxL[:, :, R:], e_SxTxM)
        (before_SxRxK, e_SxRxM) = (jnp.concatenate(two, axis=1)[:, T:] for two in zip(*pairs))
        memory = {'before_SxRxK': before_SxRxK, 'e_SxRxM': e_SxRxM, 'h_SxK': n_SxTxK[:, -1], 'kept_S': kept_S}
        return matmul(mean_SxTxM, params['V_MxK'], precision), memory


def _normalize(h_SxTxK: jax.Array) -> jax.Array:
    return h_SxTxK * jax.lax.rsqrt(jnp.mean(h_SxTxK**2, axis=2, keepdims=True) + 1e-5)
