"""The protocol that every family answers; evaluation, mixing, generation and tables know only this."""

from __future__ import annotations

import functools
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.data import dataset
from nplm_jax.data.corpora import Span
from nplm_jax.data.vocabulary import RARE_ID
from nplm_jax.models import nplm, recurrent
from nplm_jax.outputs import blockwise

WARM_UP = 512  # words before a span that a recurrent network reads first
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
    """The paper's network behind the protocol. What it remembers of the words read is the last n-1 of them."""

    def __init__(self, params: nplm.Params, n: int):
        self.params = params
        self.num_context = n - 1

    def begin(self, contexts_BxN: np.ndarray) -> np.ndarray:
        """What it remembers after words in reading order: the last n-1, most recent first, missing ones rare. int32."""
        recent_BxN = np.asarray(contexts_BxN, np.int32)[:, ::-1][:, : self.num_context]
        missing = self.num_context - recent_BxN.shape[1]
        return np.pad(recent_BxN, ((0, 0), (0, missing)), constant_values=RARE_ID)

    @staticmethod
    def predict(params: nplm.Params, recent_BxN: jax.Array) -> jax.Array:
        """log P of all words, by what it remembers; pure. Returns: B x V, nats."""
        return nplm.log_probabilities(params, recent_BxN)

    @staticmethod
    def advance(_params: nplm.Params, recent_BxN: jax.Array, ids_B: jax.Array) -> jax.Array:
        """What it remembers after one word more; pure."""
        return jnp.concatenate([ids_B[:, None], recent_BxN[:, :-1]], axis=1)

    def score(self, tokens_T: jax.Array | np.ndarray, span: Span) -> np.ndarray:
        blocks = -(-len(span) // SCORING_BATCH)
        positions = np.minimum(span.start + np.arange(blocks * SCORING_BATCH), span.stop - 1).astype(np.int32)
        scored = _score(self.params, jnp.asarray(tokens_T), positions.reshape(blocks, -1), self.num_context)
        return np.asarray(scored).reshape(-1)[: len(span)]

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        return np.asarray(_predict(NeuralLanguageModel, self.params, self.begin(contexts_BxN)))


class RecurrentLanguageModel:
    """A recurrent network behind the protocol. What it remembers of the words read is its state and its last h.

    Of a stream it reads all words from the span's start on, one after another, after WARM_UP words before the span.
    """

    def __init__(self, params: recurrent.Params):
        self.params = params

    def score(self, tokens_T: jax.Array | np.ndarray, span: Span) -> np.ndarray:
        start = max(0, span.start - WARM_UP)
        length = -(-(span.stop - start) // SCORING_BATCH) * SCORING_BATCH  # the same program for streams about as long
        positions_T = np.minimum(start + np.arange(length), span.stop - 1).astype(np.int32)
        scored_T = _score_stream(self.params, jnp.asarray(tokens_T), positions_T)
        return np.asarray(scored_T)[span.start - start : span.stop - start]

    def score_lines(self, lines_BxT: np.ndarray) -> np.ndarray:
        """log P of each word after those before it in its line, each line as at a stream's start. B x T, nats."""
        return np.asarray(_score_lines(self.params, lines_BxT))

    def next_word(self, contexts_BxN: np.ndarray) -> np.ndarray:
        return np.asarray(_predict(RecurrentLanguageModel, self.params, self.begin(contexts_BxN)))

    def begin(self, contexts_BxN: np.ndarray) -> tuple[recurrent.State, jax.Array]:
        """What it remembers after the rare-word symbol, which stands for all that was before, and these words."""
        N = contexts_BxN.shape[1]
        after = -(N + 1) % 16  # so that contexts about as long share a program
        words_BxT = np.pad(np.asarray(contexts_BxN, np.int32), ((0, 0), (1, after)), constant_values=RARE_ID)
        return _remember(self.params, words_BxT, N)

    @staticmethod
    def predict(params: recurrent.Params, remembered: tuple[recurrent.State, jax.Array]) -> jax.Array:
        """log P of all words, by what it remembers; pure. Returns: B x V, nats."""
        return recurrent.log_probabilities(params, remembered[1])

    @staticmethod
    def advance(params: recurrent.Params, remembered, ids_B: jax.Array) -> tuple[recurrent.State, jax.Array]:
        """What it remembers after one word more; pure."""
        return recurrent.advance(params, remembered[0], params.C_VxM[ids_B])


Network = NeuralLanguageModel | RecurrentLanguageModel


def from_params(params: nplm.Params | recurrent.Params, n: int) -> Network:
    """The network of these parameters behind the protocol. n: its order, which recurrent ones have not."""
    return RecurrentLanguageModel(params) if isinstance(params, recurrent.Params) else NeuralLanguageModel(params, n)


@functools.partial(jax.jit, static_argnames='kind')
@jax.default_matmul_precision('float32')  # some accelerators would otherwise round to fewer bits
def _predict(kind: type[Network], params, remembered) -> jax.Array:
    return kind.predict(params, remembered)


@jax.jit
@jax.default_matmul_precision('float32')
def _remember(params: recurrent.Params, words_BxT: jax.Array, last: int) -> tuple[recurrent.State, jax.Array]:
    def step(state, ids_B):
        remembered = recurrent.advance(params, state, params.C_VxM[ids_B])
        return remembered[0], remembered

    nothing = recurrent.begin(params.family, params.U_VxK.shape[1], len(words_BxT))
    return jax.tree.map(lambda x: x[last], jax.lax.scan(step, nothing, words_BxT.T)[1])


@jax.jit
@jax.default_matmul_precision('float32')
def _score_stream(params: recurrent.Params, tokens_T: jax.Array, positions_T: jax.Array) -> jax.Array:
    before_Tx1, targets_T = dataset.windows(tokens_T, positions_T, 1)
    return _targets_log_p(params, before_Tx1.T, targets_T[None])[0]


@jax.jit
@jax.default_matmul_precision('float32')
def _score_lines(params: recurrent.Params, lines_BxT: jax.Array) -> jax.Array:
    before_BxT = jnp.pad(lines_BxT[:, :-1], ((0, 0), (1, 0)), constant_values=RARE_ID)
    return _targets_log_p(params, before_BxT, lines_BxT)


def _targets_log_p(params: recurrent.Params, before_BxT: jax.Array, targets_BxT: jax.Array) -> jax.Array:
    """log P of each target from the words before it in its row, some words of the rows at a time. B x T, nats."""
    B, T = targets_BxT.shape
    size = max(1, SCORING_BATCH // B)
    in_blocks = (jnp.pad(x, ((0, 0), (0, -T % size))).reshape(B, -1, size) for x in (before_BxT, targets_BxT))

    def block(state, words):
        before_BxS, targets_BxS = words
        state, h_BxSxK = recurrent.read(params, state, params.C_VxM[before_BxS])
        y_VxBS = blockwise.scores(params.b_V, (params.U_VxK, h_BxSxK.reshape(B * size, -1)))
        return state, -blockwise.negative_log_likelihood(y_VxBS, targets_BxS.reshape(-1)).reshape(B, size)

    nothing = recurrent.begin(params.family, params.U_VxK.shape[1], B)
    scored = jax.lax.scan(block, nothing, tuple(x.swapaxes(0, 1) for x in in_blocks))[1]
    return scored.swapaxes(0, 1).reshape(B, -1)[:, :T]


@functools.partial(jax.jit, static_argnames='num_context')
@jax.default_matmul_precision('float32')
def _score(params: nplm.Params, tokens_T: jax.Array, positions_SxB: jax.Array, num_context: int) -> jax.Array:
    def block(positions_B):
        contexts_BxN, targets_B = dataset.windows(tokens_T, positions_B, num_context)
        return -nplm.negative_log_likelihood(params, contexts_BxN, targets_B)

    return jax.lax.map(block, positions_SxB)
