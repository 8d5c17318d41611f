"""The contestants in JAX: nplm_jax's training step and plain JAX.

Dims: V vocabulary, B batch, S streams, T words per stream, L words read per stream, N context words, D and E inputs
and outputs of a layer, K units, H heads, R words of the Transformer's state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.cost.speed.problem import Problem, Turn
from nplm_jax.config import settings as config_lib
from nplm_jax.config.settings import Settings
from nplm_jax.models.body import State
from nplm_jax.models.lstm import join_gates
from nplm_jax.models.nplm import Window
from nplm_jax.models.recurrent import Recurrent
from nplm_jax.models.transformer import Transformer, rotate, visible
from nplm_jax.outputs.output_layer import Params
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.runs.program_from_settings import make_program
from nplm_jax.training import step

Linear = Callable[[jax.Array, jax.Array], jax.Array]  # inputs_xD, weights_DxE -> inputs_xE
Drop = Callable[..., jax.Array]  # values, number of the mask, rate, axes that share a mask
# params, embedded words, state of the streams, settings of the body, Linear, Drop -> features by output matrix, state
Body = Callable[[Params, jax.Array, State, Any, Linear, Drop], tuple[dict[str, jax.Array], State]]


def ours(problem: Problem, precision: str) -> Turn:
    """Runs nplm_jax's `execute_steps`, as launch.py does."""
    settings = _settings(problem, precision)
    program = _program(settings, problem)
    params = jax.tree.map(jnp.array, problem.params)
    extras = program.network.output.make_extras(problem.tokens_T, problem.vocabulary_size)
    inputs = step.StepInputs(jnp.asarray(problem.tokens_T), jax.tree.map(jnp.asarray, extras))
    opt_state = program.optimizer.init(params, settings.optimizer.hyperparams)
    carry = program.network.start(problem.num_streams)
    state = step.TrainState(params, opt_state, jnp.zeros((), jnp.int32), jnp.int32(settings.seed), carry)
    positions_T = jnp.asarray(problem.positions_SxB.ravel())

    def turn() -> np.ndarray:
        nonlocal state
        state, nll_S = step.execute_steps(program, state, positions_T, 0, problem.num_steps, inputs)
        return np.asarray(nll_S)

    return turn


def _window(
    params: Params, e_SxLxM: jax.Array, state: State, model: Window, linear: Linear, drop: Drop
) -> tuple[dict[str, jax.Array], State]:
    x_BxP = drop(e_SxLxM[:, ::-1].reshape(len(e_SxLxM), -1), 0, model.dropout)  # the most recent word first
    features = {}
    if 'U_VxK' in params:
        hidden_BxK = jnp.tanh(linear(x_BxP, params['H_KxP'].T) + params['d_K'][None, :])
        features['U_VxK'] = drop(hidden_BxK, 1, model.dropout)
    if 'W_VxP' in params:
        features['W_VxP'] = x_BxP
    return features, state


def _recurrent(
    params: Params, e_SxTxM: jax.Array, state: State, model: Recurrent, linear: Linear, drop: Drop
) -> tuple[dict[str, jax.Array], State]:
    """Scans over the words with an LSTM, or with a Mogrifier if the cell has rounds."""
    ((c_SxK, h_SxK),) = state
    cell = params['cell']
    rounds = getattr(model, 'round_names', ())  # an LSTM has none
    W_DxG, W_KxG, b_G = join_gates(cell)
    W_DxG = jnp.concatenate([W_DxG, drop(W_KxG, 2, model.weight_dropout)])

    def read(carry: tuple[jax.Array, jax.Array], x_SxM: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        c_SxK, h_SxK = carry
        for name in rounds:
            if name[0] == 'Q':
                x_SxM = 2 * jax.nn.sigmoid(linear(h_SxK, cell[name])) * x_SxM
            else:
                h_SxK = 2 * jax.nn.sigmoid(linear(x_SxM, cell[name])) * h_SxK
        z_SxG = linear(jnp.concatenate([x_SxM, h_SxK], axis=1), W_DxG) + b_G[None, :]
        i, f, g, o = jnp.split(z_SxG, 4, axis=1)
        c_SxK = jax.nn.sigmoid(f) * c_SxK + jax.nn.sigmoid(i) * jnp.tanh(g)
        h_SxK = jax.nn.sigmoid(o) * jnp.tanh(c_SxK)
        return (c_SxK, h_SxK), h_SxK

    shared = (1,) if model.variational else ()
    e_SxTxM = e_SxTxM * drop(jnp.ones((*e_SxTxM.shape[:2], 1)), 3, model.word_dropout)
    e_SxTxM = drop(e_SxTxM, 0, model.dropout, shared)
    carry, h_TxSxK = jax.lax.scan(read, (c_SxK, h_SxK), e_SxTxM.swapaxes(0, 1))
    h_SxTxK = drop(h_TxSxK.swapaxes(0, 1), 1, model.output_rate, shared)
    return dict.fromkeys(model.widths, h_SxTxK), (carry,)


def _transformer(
    params: Params, e_SxTxM: jax.Array, state: State, model: Transformer, linear: Linear, drop: Drop
) -> tuple[dict[str, jax.Array], State]:
    """Computes the layers with jax.nn.dot_product_attention over the words in the state and in the batch."""
    shared, (S, T, _) = (1,) if model.variational else (), e_SxTxM.shape
    seen_SxTxL, kept_S = visible(model.memory, state['kept_S'], None, T)
    places_L = jnp.arange(-model.memory, T)

    def norm(z_SxTxK: jax.Array, g_K: jax.Array) -> jax.Array:
        return jax.nn.standardize(z_SxTxK, axis=2) * g_K[None, None, :]

    z_SxTxK, caches = linear(drop(e_SxTxM, 0, model.dropout, shared), params['E_PxK']), []
    for i, cache in enumerate(state['layers']):
        layer = params['layers'][f'layer_{i}']
        qkv_SxTx3K = linear(norm(z_SxTxK, layer['g_attention_K']), layer['QKV_Kx3K'])
        queries, *new = (x.reshape(S, T, *model.shape) for x in jnp.split(qkv_SxTx3K, 3, axis=2))
        keys, values = (jnp.concatenate([cache[name], x], axis=1) for name, x in zip(('keys', 'values'), new))
        caches.append({'keys': keys[:, T:], 'values': values[:, T:]})
        queries, keys = rotate(queries, places_L[model.memory :]), rotate(keys, places_L)
        queries, keys, values = (x.astype(model.precision) for x in (queries, keys, values))
        y_SxTxHxD = jax.nn.dot_product_attention(queries, keys, values, mask=seen_SxTxL[:, None])
        y_SxTxK = linear(y_SxTxHxD.reshape(S, T, -1), layer['O_KxK'])
        z_SxTxK = z_SxTxK + drop(y_SxTxK, 2 * i + 2, model.dropout, shared)
        a_SxTxF = linear(norm(z_SxTxK, layer['g_K']), layer['A_KxF']) + layer['a_F'][None, None, :]
        y_SxTxK = linear(jax.nn.gelu(a_SxTxF), layer['B_FxK'])
        z_SxTxK = z_SxTxK + drop(y_SxTxK, 2 * i + 3, model.dropout, shared)
    y_SxTxM = linear(norm(z_SxTxK, params['g_K']), params['P_KxM'])
    features = dict.fromkeys(model.widths, drop(y_SxTxM, 1, model.output_rate, shared))
    return features, {'before': None, 'layers': tuple(caches), 'kept_S': kept_S}


BODIES: dict[str, Body] = {  # by model.family
    'nplm': _window,
    'lstm': _recurrent,
    'mogrifier': _recurrent,
    'transformer': _transformer,
}


def plain_jax(problem: Problem, precision: str) -> Turn:
    """Implements the network in the most direct way, with jax.grad of log_softmax over the B x V scores.

    The updates of a turn are a single scan. With bfloat16, the inputs of the matrix products are rounded.
    """
    settings = _settings(problem, precision)
    optimizer = _program(settings, problem).optimizer

    def linear(inputs_xD: jax.Array, weights_DxE: jax.Array) -> jax.Array:
        return (inputs_xD.astype(precision) @ weights_DxE.astype(precision)).astype(jnp.float32)

    def nll(params: Params, state: State, positions_B: jax.Array, key: jax.Array) -> tuple[jax.Array, State]:
        def drop(values: jax.Array, number: int, rate: float, shared: tuple[int, ...] = ()) -> jax.Array:
            if not rate:
                return values
            shape = [1 if axis in shared else size for axis, size in enumerate(values.shape)]
            keep = jax.random.bernoulli(jax.random.fold_in(key, number), 1 - rate, shape)
            return jnp.where(keep, values / (1 - rate), 0)

        batch = problem.batch(positions_B)
        words = params['C_VxM'][batch.ids_SxL]
        features, state = BODIES[settings.model.name](
            params, words, jax.lax.stop_gradient(state), settings.model, linear, drop
        )
        y_BxV = params['b_V'][None, :]
        for name, values in features.items():
            y_BxV = y_BxV + linear(values.reshape(len(positions_B), -1), params[name].T)
        log_p_BxV = jax.nn.log_softmax(y_BxV)
        return -jnp.mean(jnp.take_along_axis(log_p_BxV, batch.targets_B[:, None], axis=1)), state

    def update(carry: tuple[Any, ...], positions_B: jax.Array) -> tuple[tuple[Any, ...], jax.Array]:
        params, opt_state, key, step, state = carry
        key, key_step = jax.random.split(key)
        (nll_per_word, state), grads = jax.value_and_grad(nll, has_aux=True)(params, state, positions_B, key_step)
        updates, opt_state = optimizer.update(grads, opt_state, params, step=step)
        return (optax.apply_updates(params, updates), opt_state, key, step + 1, state), nll_per_word

    @functools.partial(jax.jit, donate_argnums=0)
    def updates(carry: tuple[Any, ...], positions_SxB: jax.Array) -> tuple[tuple[Any, ...], jax.Array]:
        start = problem.network.start(problem.num_streams)
        (*others, _), nll_S = jax.lax.scan(update, (*carry, start), positions_SxB)
        return tuple(others), nll_S

    params = jax.tree.map(jnp.array, problem.params)
    opt_state = optimizer.init(params, settings.optimizer.hyperparams)
    carry = (params, opt_state, jax.random.key(settings.seed), jnp.zeros((), jnp.int32))
    positions_SxB = jnp.asarray(problem.positions_SxB)

    def turn() -> np.ndarray:
        nonlocal carry
        carry, nll_S = updates(carry, positions_SxB)
        return np.asarray(nll_S)

    return turn


def _settings(problem: Problem, precision: str) -> Settings:
    """Returns the settings of the problem at a precision."""
    keys = {'output.precision', 'model.precision'} & config_lib.to_flat(problem.settings).keys()
    return config_lib.replace(problem.settings, dict.fromkeys(keys, precision))


def _program(settings: Settings, problem: Problem) -> step.Program:
    """Returns the program. Its epochs are the turns."""
    network = network_from_settings(settings, problem.vocabulary_size)
    return make_program(settings, network, steps_per_epoch=problem.num_steps)
