"""Computes the features of a network incrementally over streams of words.

Dims: S streams, L words per stream in each call, R words of lookback (`Body.lookback`), K blocks of B words.
"""

import functools
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


class ReadState(NamedTuple):
    """The state of a network between calls of `read`.

    Attributes:
        recent_SxR: The last R words of each stream, which form the lookback of the next call.
        body: The state of the body.
    """

    recent_SxR: jax.Array | np.ndarray
    body: State


def start_state(network: Network, num_streams: int) -> ReadState:
    """Returns the initial state of `num_streams` streams."""
    return ReadState(np.full((num_streams, network.body.lookback), RARE_ID, np.int32), network.body.start(num_streams))


@functools.cache
def max_streams(body: Body, max_bytes: int) -> int:
    """Returns the largest power of two of streams whose states fit into `max_bytes`, at least 1."""
    size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(jax.eval_shape(lambda: body.start(1))))
    return 1 << max(1, max_bytes // max(1, size)).bit_length() - 1


def stream_blocks(
    network: Network, tokens_T: np.ndarray, span: Span, size: int
) -> tuple[ReadState, np.ndarray, np.ndarray]:
    """Prepares the inputs and targets for predicting the words in a span.

    Args:
        network: The network.
        tokens_T: Ids of the stream.
        span: The positions of the words to predict.
        size: B, the number of words per block.

    Returns:
        A tuple (state, inputs, targets) of the state before the first block, and of the word ids of the inputs and of
        the targets, both K x B. The last block is padded with rare-word symbols.
    """
    R = network.body.lookback
    words_L = with_history(tokens_T, span, R + 1).astype(np.int32)
    words_L = np.pad(words_L, (0, -len(span) % size), constant_values=RARE_ID)
    state = ReadState(words_L[None, :R], network.body.start(1))
    return state, words_L[R:-1].reshape(-1, size), words_L[R + 1 :].reshape(-1, size)


def read(network: Network, params: Params, state: ReadState, ids_SxL: jax.Array) -> tuple[Features, ReadState]:
    """Reads the next L words of each stream. Returns the features after each word, S x L x D, and the next state."""
    words = jnp.concatenate([state.recent_SxR, ids_SxL], axis=1)
    ids, starts = mark_lines(words, network.line_end)
    output = network.features(params, ids, state.body, starts_SxL=starts)
    return output.features, ReadState(words[:, ids_SxL.shape[1] :], output.state)


def jit_float32(function: Callable[..., Any], static_argnames: Sequence[str] = ('network',)) -> Any:
    """Compiles a function whose float32 matrix products have full precision, unlike the default of accelerators."""
    return jax.jit(jax.default_matmul_precision('float32')(function), static_argnames=static_argnames)
