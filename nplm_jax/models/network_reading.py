"""Features of a network over streams of words, with a state that is kept between calls.

Dims: S streams, L words of each that are read, R words before them (`Body.lookback`), K blocks of B words.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.data.batches import mark_lines
from nplm_jax.data.stream import RARE_ID, Span, with_history
from nplm_jax.models.body import Body, State
from nplm_jax.models.network import Network
from nplm_jax.outputs.output_layer import Features, Params

_BURN_IN = 512  # words before a scored span that fill a state of unlimited reach


class ReadState(NamedTuple):
    """What a network keeps of the words that it has read.

    Attributes:
        recent_SxR: The last words of each stream, with which the windows of the next words begin.
        body: The state of the body.
    """

    recent_SxR: jax.Array | np.ndarray
    body: State


def burn_in(body: Body) -> int:
    """Returns the number of words that are read before a scored span, so that the state knows the words before it."""
    return _BURN_IN if body.reach is None else body.reach - body.lookback - 1


def start_state(network: Network, num_streams: int) -> ReadState:
    """Returns the state before the first word of each stream."""
    recent_SxR = np.full((num_streams, network.body.lookback), RARE_ID, np.int32)
    return ReadState(recent_SxR, network.body.start(num_streams))


def stream_blocks(
    network: Network, tokens_T: np.ndarray, span: Span, size: int
) -> tuple[ReadState, np.ndarray, np.ndarray]:
    """Returns what a network reads to predict the words of a span.

    Args:
        network: The network.
        tokens_T: Ids of the stream.
        span: The words to predict.
        size: B.

    Returns:
        What `read` takes before the first block; the words to read, K x B; and the words that follow each, K x B. The
        last block is filled up with rare-word symbols.
    """
    R = network.body.lookback
    words_L = with_history(tokens_T, span, R + 1).astype(np.int32)
    words_L = np.pad(words_L, (0, -len(span) % size), constant_values=RARE_ID)
    state = ReadState(words_L[None, :R], network.body.start(1))
    return state, words_L[R:-1].reshape(-1, size), words_L[R + 1 :].reshape(-1, size)


def read(network: Network, params: Params, state: ReadState, ids_SxL: jax.Array) -> tuple[Features, ReadState]:
    """Returns the features after each of the next words of each stream, S x L x D, and what to go on with."""
    words = jnp.concatenate([state.recent_SxR, ids_SxL], axis=1)
    ids, starts = mark_lines(words, network.line_end)
    output = network.features(params, ids, state.body, starts_SxL=starts)
    return output.features, ReadState(words[:, ids_SxL.shape[1] :], output.state)


def jit_float32(function: Callable[..., Any], static_argnames: Sequence[str] = ('network',)) -> Any:
    """Compiles a function of a network with full float32 products (accelerators default to fewer bits)."""
    return jax.jit(jax.default_matmul_precision('float32')(function), static_argnames=static_argnames)
