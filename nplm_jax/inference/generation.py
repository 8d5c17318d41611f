"""Text from any language model: greedy, sampled (temperature, top-k, nucleus) and by beam search.

Dims: B sequences, T words to write, N words of a context, V vocabulary, K width of the beam.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.data.vocabulary import RARE_ID
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.utils.errors import BadInput, require

BLOCK = 256  # sequences at once: what bounds the memory
_GROUP = 128  # words whose probabilities are summed before one of them is looked for


@dataclasses.dataclass(frozen=True)
class Choice:
    """From which words the next one is drawn, and how.

    temperature: scores are divided by it; below 1 the likely words become likelier. top_k: the k likeliest words,
    of equally likely ones the more frequent; None is all. top_p: of those left the fewest that have this share of
    the probability, and all that are as likely as the last of them; None is all. rare: the rare-word symbol too.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    rare: bool = False

    def __post_init__(self):
        ok = math.isfinite(self.temperature) and self.temperature >= 1e-6
        require(ok, 'temperature', self.temperature, 'must be 1e-6 or more and finite; top_k=1 takes the likeliest')
        require(self.top_k is None or self.top_k >= 1, 'top_k', self.top_k, 'must be 1 or more; leave it out for all')
        ok = self.top_p is None or 0 < self.top_p <= 1
        require(ok, 'top_p', self.top_p, 'must be above 0 and at most 1; leave it out for all')


GREEDY = Choice(top_k=1)


def sample(
    model: LanguageModel, prompt_N: np.ndarray, words: int, samples: int, choice: Choice = Choice(), seed: int = 1
) -> np.ndarray:
    """Sequences that go on from a beginning, each word drawn by `choice` from what the model predicts.

    A sequence depends on the seed and its own number alone: the first of 1,000 are the same as of 10. Where
    nothing but the rare-word symbol can follow and it is not asked for, all other words are equally likely.
    prompt_N: ids in reading order; may be empty. Returns: ids of the words after the prompt, int32, B x T.
    """
    _check(words)
    require(samples >= 1, 'samples', samples, 'must be 1 or more')
    require(0 <= seed < 2**31, 'seed', seed, 'must be at least 0 and below 2**31')
    blocks = -(-samples // BLOCK)
    size = -(-samples // blocks)
    prompt_BxN = np.tile(np.asarray(prompt_N, np.int32), (size, 1))
    written = []
    for block in range(blocks):
        uniforms_TxB = _uniforms(seed, block * size + np.arange(size), words)
        written.append(_sample(model, prompt_BxN, uniforms_TxB, choice))
    return np.concatenate(written)[:samples]


def beam(
    model: LanguageModel, prompt_N: np.ndarray, words: int, width: int, rare: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The likeliest sequences that a search finds which keeps the `width` likeliest beginnings after each word.

    Returns: ids of the words after the prompt, int32, K x T, likeliest first, and log P of each sequence after the
    prompt, float64, nats. K is `width`, or less where fewer are possible.
    """
    _check(words)
    require(width >= 1, 'beam', width, 'must be 1 or more')
    contexts_KxN, log_p_K = np.asarray(prompt_N, np.int32)[None], np.zeros(1)
    for _ in range(words):
        log_p_KxV = model.next_word(contexts_KxN).astype(np.float64)
        if not rare:
            log_p_KxV[:, RARE_ID] = -np.inf
        log_p = (log_p_K[:, None] + log_p_KxV).ravel()
        best_K = np.argsort(-log_p, kind='stable')[:width]
        best_K = best_K[np.isfinite(log_p[best_K])]
        if not len(best_K):
            raise BadInput(f'beam={width}: after each beginning only the rare-word symbol is possible; allow it')
        rows_K, ids_K = np.divmod(best_K, log_p_KxV.shape[1])
        contexts_KxN = np.concatenate([contexts_KxN[rows_K], ids_K[:, None].astype(np.int32)], axis=1)
        log_p_K = log_p[best_K]
    return contexts_KxN[:, len(prompt_N) :], log_p_K


def draw(scores_BxV: jax.Array, uniforms_B: jax.Array, choice: Choice) -> jax.Array:
    """The word of each row in which a uniform number in [0, 1) falls when its words are laid end to end.

    scores_BxV: log-probabilities, up to a constant a row. Pure; to be called inside jit. Returns: ids, int32, B.
    """
    if not choice.rare:
        scores_BxV = scores_BxV.at[:, RARE_ID].set(-jnp.inf)
        stuck_B = jnp.all(jnp.isneginf(scores_BxV), axis=1)
        others_V = jnp.arange(scores_BxV.shape[1]) != RARE_ID
        scores_BxV = jnp.where(stuck_B[:, None] & others_V[None, :], 0.0, scores_BxV)
    largest_B = jnp.max(scores_BxV, axis=1)
    p_BxV = jnp.exp((scores_BxV - largest_B[:, None]) / choice.temperature)
    if choice.top_k is not None and choice.top_k < p_BxV.shape[1]:
        p_BxV = _keep_top_k(p_BxV, choice.top_k)
    if choice.top_p is not None and choice.top_p < 1:
        p_BxV = _keep_top_p(p_BxV, choice.top_p)
    B, V = p_BxV.shape
    p_BxSxG = jnp.pad(p_BxV, ((0, 0), (0, -V % _GROUP))).reshape(B, -1, _GROUP)
    sums_BxS = jnp.sum(p_BxSxG, axis=2)
    group_B, rest_B = _find(sums_BxS, uniforms_B * jnp.sum(sums_BxS, axis=1))
    p_BxG = jnp.take_along_axis(p_BxSxG, group_B[:, None, None], axis=1)[:, 0]
    return group_B * _GROUP + _find(p_BxG, rest_B)[0]


def _find(p_BxI: jax.Array, where_B: jax.Array) -> tuple[jax.Array, jax.Array]:
    """In which of the lengths laid end to end each point falls, never one of length 0, and how far into it."""
    ends_BxI = jnp.cumsum(p_BxI, axis=1)
    last_B = jnp.sum(ends_BxI < ends_BxI[:, -1:], axis=1)  # the last that has a length: rounding may lead beyond
    i_B = jnp.minimum(jnp.sum(ends_BxI <= where_B[:, None], axis=1), last_B)
    picked = [jnp.take_along_axis(x, i_B[:, None], axis=1)[:, 0] for x in (ends_BxI, p_BxI)]
    return i_B, where_B - (picked[0] - picked[1])


def _keep_top_k(p_BxV: jax.Array, k: int) -> jax.Array:
    # Of equal values the lower ids first. Without the barrier XLA makes of it a whole sort, ten times as slow.
    values_BxK, ids_BxK = jax.lax.optimization_barrier(jax.lax.top_k(p_BxV, k))
    least_Bx1, last_Bx1 = values_BxK[:, -1:], ids_BxK[:, -1:]
    ids_1xV = jnp.arange(p_BxV.shape[1])[None, :]
    return jnp.where((p_BxV > least_Bx1) | ((p_BxV == least_Bx1) & (ids_1xV <= last_Bx1)), p_BxV, 0)


def _keep_top_p(p_BxV: jax.Array, share: float) -> jax.Array:
    """Keeps the values of at least t, t the largest number for which their sum is large enough.

    Positive floats are ordered as their bits are, so t is found bit by bit: ten times as fast as sorting.
    """
    wanted_B = share * jnp.sum(p_BxV, axis=1)

    def at_least(bits_B):
        return jnp.where(p_BxV >= jax.lax.bitcast_convert_type(bits_B, jnp.float32)[:, None], p_BxV, 0)

    def settle(i, bits_B):
        tried_B = bits_B | (1 << (29 - i))  # no value is above 1, whose highest bit is this
        return jnp.where(jnp.sum(at_least(tried_B), axis=1) >= wanted_B, tried_B, bits_B)

    return at_least(jax.lax.fori_loop(0, 30, settle, jnp.zeros(len(p_BxV), jnp.int32)))


_draw = jax.jit(draw, static_argnames='choice')


def _sample(model: LanguageModel, contexts_BxN: np.ndarray, uniforms_TxB: jax.Array, choice: Choice) -> np.ndarray:
    """By the protocol alone: one call of next_word for all sequences a word. Returns: int32, B x T."""
    state, ids_TxB = model.begin(contexts_BxN), []
    for uniforms_B in uniforms_TxB:
        ids_TxB.append(_draw(model.predict(state), uniforms_B, choice))
        state = model.advance(state, ids_TxB[-1])
    return np.stack(ids_TxB).T


@functools.partial(jax.jit, static_argnames='words')
def _uniforms(seed: int, numbers_B: np.ndarray, words: int) -> jax.Array:
    """A uniform number for each word of each sequence, by the number of the sequence. float32, T x B."""
    keys_B = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.key(seed), numbers_B)
    return jax.vmap(lambda key: jax.random.uniform(key, (words,)))(keys_B).T


def _check(words: int) -> None:
    require(words >= 1, 'words', words, 'must be 1 or more')
