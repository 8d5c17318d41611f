"""The contestants in JAX: nplm_jax's training step and plain JAX.

Dims: V vocabulary, B batch, N context words, D and E inputs and outputs of a layer, S updates of a turn.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.cost.speed.problem import Problem, Turn
from nplm_jax.config import settings as config_lib
from nplm_jax.config.settings import Settings
from nplm_jax.data import batches
from nplm_jax.outputs.output_layer import Params
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.runs.program_from_settings import make_program
from nplm_jax.training import step

Loss = Callable[[Params, jax.Array, jax.Array, jax.Array], jax.Array]  # params, contexts_BxN, targets_B, key -> NLL


def ours(problem: Problem, precision: str) -> Turn:
    """Runs nplm_jax's `execute_steps`, like launch.py."""
    settings = config_lib.replace(problem.settings, {'output.precision': precision})
    program = _program(settings, problem)
    params = jax.tree.map(jnp.array, problem.params)
    inputs = step.StepInputs(jnp.asarray(problem.tokens_T))
    opt_state = program.optimizer.init(params, settings.optimizer.hyperparams)
    state = step.TrainState(params, opt_state, jnp.zeros((), jnp.int32), jnp.int32(settings.seed))
    positions_T = jnp.asarray(problem.positions_SxB.ravel())

    def turn() -> np.ndarray:
        nonlocal state
        state, nll_S = step.execute_steps(program, state, positions_T, 0, problem.num_steps, inputs)
        return np.asarray(nll_S)

    return turn


def plain_jax(problem: Problem, precision: str) -> Turn:
    """Implements the network in the most direct way: jax.grad of log_softmax over the B x V scores."""
    return _turn_of(problem, functools.partial(_plain_nll, rate=problem.settings.model.dropout, precision=precision))


def _plain_nll(
    params: Params, contexts_BxN: jax.Array, targets_B: jax.Array, key: jax.Array, rate: float, precision: str
) -> jax.Array:
    """Returns the mean NLL, nats per word; bfloat16 rounds the inputs of the matrix products."""

    def linear(inputs_BxD: jax.Array, weights_ExD: jax.Array) -> jax.Array:
        product = inputs_BxD.astype(precision) @ weights_ExD.astype(precision).T
        return product.astype(jnp.float32)

    def drop(key: jax.Array, values: jax.Array) -> jax.Array:
        return jnp.where(jax.random.bernoulli(key, 1 - rate, values.shape), values / (1 - rate), 0) if rate else values

    key_x, key_a = jax.random.split(key)
    most_recent_first_BxN = contexts_BxN[:, ::-1]
    x_BxP = drop(key_x, params['C_VxM'][most_recent_first_BxN].reshape(len(contexts_BxN), -1))
    y_BxV = params['b_V'][None, :]
    if 'U_VxK' in params:
        a_BxK = drop(key_a, jnp.tanh(linear(x_BxP, params['H_KxP']) + params['d_K'][None, :]))
        y_BxV = y_BxV + linear(a_BxK, params['U_VxK'])
    if 'W_VxP' in params:
        y_BxV = y_BxV + linear(x_BxP, params['W_VxP'])
    log_p_BxV = jax.nn.log_softmax(y_BxV)
    return -jnp.mean(jnp.take_along_axis(log_p_BxV, targets_B[:, None], axis=1))


def _turn_of(problem: Problem, nll: Loss) -> Turn:
    """Returns a function that runs gradient descent on a loss plus R for one turn, in a single scan."""
    settings = problem.settings
    optimizer = _program(settings, problem).optimizer

    def update(
        state: tuple[Params, optax.OptState, jax.Array, jax.Array], positions_B: jax.Array
    ) -> tuple[tuple[Params, optax.OptState, jax.Array, jax.Array], jax.Array]:
        params, opt_state, key, step = state
        key, key_step = jax.random.split(key)
        batch = batches.examples(tokens_T, positions_B, settings.model.n - 1)
        nll_per_word, grads = jax.value_and_grad(nll)(params, *batch, key_step)
        updates, opt_state = optimizer.update(grads, opt_state, params, step=step)
        return (optax.apply_updates(params, updates), opt_state, key, step + 1), nll_per_word

    updates = jax.jit(lambda state, positions_SxB: jax.lax.scan(update, state, positions_SxB), donate_argnums=0)
    params = jax.tree.map(jnp.array, problem.params)
    state = (
        params,
        optimizer.init(params, settings.optimizer.hyperparams),
        jax.random.key(settings.seed),
        jnp.zeros((), jnp.int32),
    )
    tokens_T, positions_SxB = jnp.asarray(problem.tokens_T), jnp.asarray(problem.positions_SxB)

    def turn() -> np.ndarray:
        nonlocal state
        state, nll_S = updates(state, positions_SxB)
        return np.asarray(nll_S)

    return turn


def _program(settings: Settings, problem: Problem) -> step.Program:
    """Returns the program, whose epochs are the turns."""
    network = network_from_settings(settings, problem.vocabulary_size)
    return make_program(settings, network, steps_per_epoch=problem.num_steps)
