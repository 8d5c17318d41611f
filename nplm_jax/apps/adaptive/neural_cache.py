"""A neural cache, which predicts the words that recently followed similar states of a network.

Use the cache in a mixture with its network. P(w_t = w) is proportional to the sum over the remembered words w_i = w of
exp(s cos(f_i, f_t)), where f_t are the features from which the network predicts w_t.

Dims: T words in a span, B words in a block, R remembered words, D features.

References:
    Grave, Joulin and Usunier, Improving neural language models with a continuous cache, 2017 (which uses f_i . f_t).
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.apps.adaptive.adaptive_model import AdaptiveModel, score_in_parts
from nplm_jax.data.stream import Span
from nplm_jax.models.body import by_example
from nplm_jax.models.network import Network
from nplm_jax.models.network_reading import ReadState, jit_float32, read, stream_blocks
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs.output_layer import Params

# The network's state, the remembered features (R x D), and the remembered words (R).
Cache = tuple[ReadState, jax.Array, jax.Array]
BLOCK = 256  # number of words compared with the remembered words at once


class NeuralCache(AdaptiveModel):
    """A language model that predicts only recent words. All other words have probability zero.

    Attributes:
        model: The network.
        num_remembered: The number of recent words to remember.
        sharpness: The factor s by which cosine similarities are multiplied. 0 results in a unigram cache.
    """

    def __init__(self, model: NeuralLanguageModel, num_remembered: int, sharpness: float) -> None:
        self.model, self.num_remembered, self.sharpness = model, num_remembered, sharpness
        self.vocabulary_size = model.network.vocabulary_size

    def score_span(self, tokens_T: np.ndarray, span: Span) -> np.ndarray:
        """See `LanguageModel.score_span`. The cache also contains the words before the span."""
        start = max(0, span.start - self.num_remembered - self.model.network.body.burn_in)
        network, R = self.model.network, self.num_remembered
        state, ids_KxB, targets_KxB = stream_blocks(network, tokens_T, Span(start, span.stop), BLOCK)
        score = functools.partial(_score_stream, network, self.model.params, jnp.float32(self.sharpness))
        features_RxD = jnp.zeros((R, sum(network.body.widths.values())))
        empty = state, features_RxD, jnp.full(R, -1, jnp.int32)
        log_p_T = score_in_parts(score, empty, ids_KxB, targets_KxB, 'neural cache')
        return log_p_T[span.start - start : span.stop - start]


@jit_float32
def _read_unit_features(
    network: Network, params: Params, state: ReadState, ids_B: jax.Array
) -> tuple[jax.Array, ReadState]:
    """Returns the features of each word as a unit vector, B x D, and the next state.

    The features of all output matrices are concatenated.
    """
    features, state = read(network, params, state, ids_B[None])
    features_BxD = jnp.concatenate(list(by_example(features).values()), axis=1)
    return features_BxD / jnp.linalg.norm(features_BxD, axis=1, keepdims=True), state


@jit_float32
def _score_stream(
    network: Network,
    params: Params,
    sharpness: jax.Array,
    cache: Cache,
    ids_KxB: jax.Array,
    targets_KxB: jax.Array,
) -> tuple[Cache, jax.Array]:
    """Returns the next cache, and log P of the targets in K consecutive blocks, in nats, K x B."""
    B, R = ids_KxB.shape[1], len(cache[2])
    age_BxL = R + jnp.arange(B)[:, None] - jnp.arange(R + B)[None, :]  # age of each word when word b is predicted
    is_in_cache_BxL = (age_BxL >= 1) & (age_BxL <= R)

    def score_block(cache: Cache, block: tuple[jax.Array, jax.Array]) -> tuple[Cache, jax.Array]:
        (state, features_RxD, words_R), (ids_B, targets_B) = cache, block
        features_BxD, state = _read_unit_features(network, params, state, ids_B)
        features_LxD = jnp.concatenate([features_RxD, features_BxD])
        words_L = jnp.concatenate([words_R, targets_B])
        is_known_BxL = is_in_cache_BxL & (words_L >= 0)[None, :]
        similarity_BxL = jnp.where(is_known_BxL, sharpness * (features_BxD @ features_LxD.T), -jnp.inf)
        is_target_BxL = words_L[None, :] == targets_B[:, None]
        total_B = jax.nn.logsumexp(similarity_BxL, axis=1)
        target_B = jax.nn.logsumexp(jnp.where(is_target_BxL, similarity_BxL, -jnp.inf), axis=1)
        log_p_B = jnp.where(jnp.isneginf(total_B), -jnp.log(network.vocabulary_size), target_B - total_B)
        return (state, features_LxD[B:], words_L[B:]), log_p_B

    return jax.lax.scan(score_block, cache, (ids_KxB, targets_KxB))
