"""The neural cache: a word that followed a similar state is likely to follow again. Mix it with its network.

P(w_t) is proportional to the sum over the last words w_i = w of exp(s cos(f_i, f_t)), where f_t are the network's
features from which it predicts w_t. Dims: T words of a span, B words of a block, R remembered words, D features, V
vocabulary, N words of a context.

References:
    Grave, Joulin and Usunier, Improving neural language models with a continuous cache, 2017 (with f_i . f_t).
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.data import dataset
from nplm_jax.data.corpora import Span
from nplm_jax.data.vocabulary import RARE_ID
from nplm_jax.models.body import Carry
from nplm_jax.models.language_model import LanguageModel, check_contexts
from nplm_jax.models.network import Network
from nplm_jax.models.neural import NeuralLanguageModel, jit_float32
from nplm_jax.outputs.output_layer import Params

Cache = tuple[Carry, jax.Array, jax.Array]  # the network's carry; features and words that are remembered, R x D and R
BLOCK = 256  # words that are compared with the remembered words at once


class NeuralCache(LanguageModel):
    """A language model that repeats words. A word that it does not remember has probability zero.

    Attributes:
        model: The network.
        num_remembered: Number of last words that it remembers.
        sharpness: s: 0 counts the words as a unigram cache does.
    """

    n = None

    def __init__(self, model: NeuralLanguageModel, num_remembered: int, sharpness: float) -> None:
        self.model, self.num_remembered, self.sharpness = model, num_remembered, sharpness

    def score_span(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.score_span`. The cache holds the words before the span, too."""
        before = self.num_remembered + self.model.network.body.burn_in
        start = max(0, span.start - before)
        positions_SxB = dataset.consecutive_positions(Span(start, span.stop), BLOCK)
        inputs = self.model.network, self.model.params, jnp.asarray(tokens_T), positions_SxB
        log_p_T = np.asarray(_score_stream(*inputs, self.num_remembered, jnp.float32(self.sharpness))).reshape(-1)
        return log_p_T[span.start - start : span.stop - start]

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """See `LanguageModel.next_word`."""
        contexts_BxN = check_contexts(contexts_BxN)
        log_p_BxV = np.empty((len(contexts_BxN), self.model.network.vocabulary_size), np.float32)
        for log_p_V, words_N in zip(log_p_BxV, contexts_BxN):
            features_LxD = np.asarray(_read(self.model.network, self.model.params, np.append(words_N, RARE_ID)))
            first = max(0, len(words_N) - self.num_remembered)
            weights_R = np.exp(self.sharpness * (features_LxD[first:-1] @ features_LxD[-1]).astype(np.float64))
            p_V = np.bincount(words_N[first:], weights_R, len(log_p_V))
            with np.errstate(divide='ignore'):
                log_p_V[:] = np.log(p_V / p_V.sum()) if len(weights_R) else -np.log(len(log_p_V))
        return log_p_BxV


def _unit_features(network: Network, params: Params, contexts_BxN: jax.Array, carry: Carry) -> tuple[jax.Array, Carry]:
    """Returns the features of all output matrices as one vector of length 1 an example, B x D, and the next carry."""
    features, carry = network.features(params, contexts_BxN, carry)
    features_BxD = jnp.concatenate(list(features.values()), axis=1)
    return features_BxD / jnp.linalg.norm(features_BxD, axis=1, keepdims=True), carry


@jit_float32
def _read(network: Network, params: Params, tokens_T: jax.Array) -> jax.Array:
    """Returns the features from which each word of a stream is predicted, T x D."""
    contexts_TxN, _ = dataset.windows(tokens_T, jnp.arange(len(tokens_T)), network.body.num_context)
    return _unit_features(network, params, contexts_TxN, network.body.start(1))[0]


@functools.partial(jit_float32, static_argnames=('network', 'num_remembered'))
def _score_stream(
    network: Network,
    params: Params,
    tokens_T: jax.Array,
    positions_SxB: jax.Array,
    num_remembered: int,
    sharpness: jax.Array,
) -> jax.Array:
    """Returns log P of the words at these consecutive positions, S x B, nats."""
    B, R = positions_SxB.shape[1], num_remembered
    D = sum(network.body.widths.values())
    age_BxL = R + jnp.arange(B)[:, None] - jnp.arange(R + B)[None, :]  # of a word when word b is predicted
    is_in_cache_BxL = (age_BxL >= 1) & (age_BxL <= R)

    def score_block(state: Cache, positions_B: jax.Array) -> tuple[Cache, jax.Array]:
        carry, features_RxD, words_R = state
        contexts_BxN, targets_B = dataset.windows(tokens_T, positions_B, network.body.num_context)
        features_BxD, carry = _unit_features(network, params, contexts_BxN, carry)
        features_LxD = jnp.concatenate([features_RxD, features_BxD])
        words_L = jnp.concatenate([words_R, targets_B])
        is_known_BxL = is_in_cache_BxL & (words_L >= 0)[None, :]
        similarity_BxL = jnp.where(is_known_BxL, sharpness * (features_BxD @ features_LxD.T), -jnp.inf)
        is_target_BxL = words_L[None, :] == targets_B[:, None]
        total_B = jax.nn.logsumexp(similarity_BxL, axis=1)
        target_B = jax.nn.logsumexp(jnp.where(is_target_BxL, similarity_BxL, -jnp.inf), axis=1)
        log_p_B = jnp.where(jnp.isneginf(total_B), -jnp.log(network.vocabulary_size), target_B - total_B)
        return (carry, features_LxD[B:], words_L[B:]), log_p_B

    empty = network.body.start(1), jnp.zeros((R, D)), jnp.full(R, -1, tokens_T.dtype)
    return jax.lax.scan(score_block, empty, positions_SxB)[1]
