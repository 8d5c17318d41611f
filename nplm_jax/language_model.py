"""The protocol that every family answers; evaluation, mixing, generation and tables know only this."""

from __future__ import annotations

import functools
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax import dataset, nplm
from nplm_jax.corpora import Span
from nplm_jax.vocabulary import RARE_ID

SCORING_BATCH = 256  # contexts at once: a V x B block of scores that stays in the cache


class LanguageModel(Protocol):
    """P(w_t | the words before it) over a closed vocabulary of |V| words."""

    def score(self, tokens_T: jax.Array | np.ndarray, span: Span) -> np.ndarray:
        """log P(w_t | w_1 ... w_{t-1}) for each t in `span` of the stream. float32 of len(span), nats."""
        ...

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """log P(w | context) for all words; contexts in reading order, the last column the most recent.

        Contexts may be longer or shorter than the model's own: the oldest words are ignored, and missing ones
        are the rare-word symbol. Returns: float32, B x V, nats.
        """
        ...


class NeuralLanguageModel:
    """The paper's network behind the protocol."""

    def __init__(self, params: nplm.Params, n: int):
        self.params = params
        self.num_context = n - 1

    def score(self, tokens_T: jax.Array | np.ndarray, span: Span) -> np.ndarray:
        blocks = -(-len(span) // SCORING_BATCH)
        positions = np.minimum(span.start + np.arange(blocks * SCORING_BATCH), span.stop - 1).astype(np.int32)
        scored = _score(self.params, jnp.asarray(tokens_T), positions.reshape(blocks, -1), self.num_context)
        return np.asarray(scored).reshape(-1)[: len(span)]

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        return np.asarray(_log_probabilities(self.params, self.recent(contexts_BxN)))

    def recent(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """The n-1 words that the network looks at, most recent first, missing ones the rare-word symbol. int32."""
        recent_BxN = np.asarray(contexts_BxN, np.int32)[:, ::-1][:, : self.num_context]
        missing = self.num_context - recent_BxN.shape[1]
        return np.pad(recent_BxN, ((0, 0), (0, missing)), constant_values=RARE_ID)


@jax.jit
@jax.default_matmul_precision('float32')  # some accelerators would otherwise round to fewer bits
def _log_probabilities(params: nplm.Params, contexts_BxN: jax.Array) -> jax.Array:
    return nplm.log_probabilities(params, contexts_BxN)


@functools.partial(jax.jit, static_argnames='num_context')
@jax.default_matmul_precision('float32')
def _score(params: nplm.Params, tokens_T: jax.Array, positions_SxB: jax.Array, num_context: int) -> jax.Array:
    def block(positions_B):
        contexts_BxN, targets_B = dataset.windows(tokens_T, positions_B, num_context)
        return -nplm.negative_log_likelihood(params, contexts_BxN, targets_B)

    return jax.lax.map(block, positions_SxB)
