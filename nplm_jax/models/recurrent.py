"""The recurrent choice of g: the words before w_t reach its prediction y = b + U h_t through a state h alone.

rnn: h_t = tanh(b_1 + W_h h_{t-1} + W_e e_t), e_t = C(w_{t-1}) (Elman, 1990; Mikolov et al., 2010). gru (Cho et al.,
2014) and lstm (Hochreiter & Schmidhuber, 1997) are Flax's cells. Dims: V words, M features a word (m), K numbers of the
state (h), S streams read side by side, T words of a stream, B = S*T words of an update, stream by stream.
"""

from __future__ import annotations

from typing import Any

import flax.linen
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from nplm_jax.config import ModelSettings, OutputSettings
from nplm_jax.models import nplm
from nplm_jax.outputs import blockwise

State = Any  # what a cell hands on to itself: S x K for rnn and gru, two of these for lstm


@flax.struct.dataclass
class Cell:
    """The free parameters of the rnn's cell, float32."""

    W_h_KxK: jax.Array
    W_e_KxM: jax.Array
    b_1_K: jax.Array


@flax.struct.dataclass
class Params:
    """The free parameters, float32. cell: a Cell for rnn, else the dictionary of Flax's cell of that family."""

    C_VxM: jax.Array
    cell: Cell | dict[str, Any]
    U_VxK: jax.Array
    b_V: jax.Array
    family: str = flax.struct.field(pytree_node=False)


def init(key: jax.Array, model: ModelSettings, vocabulary_size: int, bias: np.ndarray | None = None) -> Params:
    """Random parameters: C, U, W_e and b as in `nplm.init`, W_h orthogonal, and Flax's cells as Flax does.

    bias: float32 of |V| to start b from (unigram log-probabilities); zeros when None.
    """
    V, M, K = vocabulary_size, model.m, model.h
    key_C, key_U, key_cell = jax.random.split(key, 3)
    if model.family == 'rnn':
        key_h, key_e = jax.random.split(key_cell)
        W_h_KxK = jax.nn.initializers.orthogonal()(key_h, (K, K))
        cell = Cell(W_h_KxK, nplm.uniform(key_e, (K, M), M**-0.5), jnp.zeros(K))
    else:
        start = begin(model.family, K, 1)
        cell = _flax_cell(model.family, K).init(key_cell, start, jnp.zeros((1, M)))['params']
    return Params(
        C_VxM=nplm.uniform(key_C, (V, M), 0.1),
        cell=cell,
        U_VxK=nplm.uniform(key_U, (V, K), K**-0.5),
        b_V=jnp.zeros(V) if bias is None else jnp.asarray(bias),
        family=model.family,
    )


def begin(family: str, h: int, streams: int) -> State:
    """The state before the first word: zeros."""
    h_SxK = jnp.zeros((streams, h))
    return (h_SxK, jnp.zeros_like(h_SxK)) if family == 'lstm' else h_SxK


def advance(params: Params, state: State, e_SxM: jax.Array) -> tuple[State, jax.Array]:
    """One word of each stream, as its features. Returns: the next state, and h, S x K."""
    if params.family == 'rnn':
        cell = params.cell
        h_SxK = jnp.tanh(cell.b_1_K[None, :] + state @ cell.W_h_KxK.T + e_SxM @ cell.W_e_KxM.T)
        return h_SxK, h_SxK
    return _flax_cell(params.family, params.U_VxK.shape[1]).apply({'params': params.cell}, state, e_SxM)


def read(params: Params, state: State, e_SxTxM: jax.Array) -> tuple[State, jax.Array]:
    """T words of each stream, as their features. Returns: the state after them, and each h, S x T x K."""
    state, h_TxSxK = jax.lax.scan(lambda s, e: advance(params, s, e), state, e_SxTxM.swapaxes(0, 1))
    return state, h_TxSxK.swapaxes(0, 1)


def nll(
    params: Params,
    before_Bx1: jax.Array,
    targets_B: jax.Array,
    state: State,
    key: jax.Array | None,
    dropout: float,
    output: OutputSettings,
    data_axis: str | None = None,
    model_axis: str | None = None,
) -> tuple[jax.Array, State]:
    """Mean NLL of the targets, each from the word before it and what its stream's state holds of the others.

    The gradient goes back to the state given and no further (truncated back-propagation through time).
    dropout: of the features and of h on its way to y, never of h on its way to itself (Zaremba et al., 2014).
    data_axis, model_axis: the named axes over which the streams and the output words are shared out, if they are.
    Returns: nats a word, and the state after the last words.
    """
    S = jax.tree.leaves(state)[0].shape[0]
    e_BxM = params.C_VxM[before_Bx1[:, 0]]
    if key is not None and dropout:
        key, key_h = jax.random.split(key)
        e_BxM = nplm.drop(key, e_BxM, dropout, data_axis)
    state, h_SxTxK = read(params, jax.lax.stop_gradient(state), e_BxM.reshape(S, -1, e_BxM.shape[1]))
    h_BxK = h_SxTxK.reshape(-1, h_SxTxK.shape[2])
    if key is not None and dropout:
        h_BxK = nplm.drop(key_h, h_BxK, dropout, data_axis)
    parts = ((params.U_VxK, h_BxK),)
    mean = blockwise.mean_nll(parts, params.b_V, targets_B, output.precision, output.block_size, model_axis)
    return mean, state


def log_probabilities(params: Params, h_SxK: jax.Array) -> jax.Array:
    """log P(w) for all |V| words. Returns: S x V, nats."""
    return blockwise.log_probabilities(blockwise.scores(params.b_V, (params.U_VxK, h_SxK))).T


def _flax_cell(family: str, h: int) -> flax.linen.RNNCellBase:
    return {'gru': flax.linen.GRUCell, 'lstm': flax.linen.OptimizedLSTMCell}[family](h)
