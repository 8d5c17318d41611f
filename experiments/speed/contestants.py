"""Who races: a contestant makes, of a Problem and a precision, a function that does one turn of training.

All contestants start from the same parameters, see the same words in the same order and do full updates: forward,
backward, SGD with the decay R(theta), the row's dropout. Without dropout they return the same losses.
Dims as in nplm_jax: V words, B batch, N context words, S updates of a turn, T words of the stream.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import flags, logging
from ml_collections import ConfigDict

from configs import brown, wikitext2
from nplm_jax import config as config_lib
from nplm_jax.data import dataset
from nplm_jax.models import nplm
from nplm_jax.training import loop, objective, optimizers

Turn = Callable[[], np.ndarray]  # does S updates; returns their mean NLLs, float32 of S, nats a word
PRECISIONS = config_lib.PRECISIONS
NAMES = ('ours', 'ours_pallas', 'plain_jax', 'torch_eager', 'torch_compile')
FOR_GPUS = ('ours_pallas',)  # elsewhere only when asked for by name
ROWS = {  # config and |V|
    'mlp1': (functools.partial(brown.get_config, 'mlp1'), brown.VOCABULARY),
    'mlp9': (functools.partial(brown.get_config, 'mlp9'), brown.VOCABULARY),
    'mlp10': (functools.partial(wikitext2.get_config, 'mlp10'), 33_279),
}
LARGE = 'large'  # for memory.py alone


def large() -> ConfigDict:
    """MLP9 with 300 hidden units, for a vocabulary beside which everything else is small."""
    config = brown.get_config('mlp9')
    config.model.h = 300
    return config


def set_up() -> None:
    """What a script does before its first array: float32 is float32 on a GPU too, whose memory JAX shares."""
    logging.set_verbosity(logging.WARNING)
    os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
    jax.config.update('jax_default_matmul_precision', 'highest')


@dataclasses.dataclass(frozen=True)
class Problem:
    """What every contestant is given; all arrays are NumPy's."""

    config: ConfigDict
    params: nplm.Params
    tokens_T: np.ndarray  # int32
    order_SxB: np.ndarray  # int32: the positions in the stream that update s predicts
    total_steps: int  # over which the learning rate falls

    @property
    def flops_a_word(self) -> int:
        """Of the matrix products of an update: 2 forward and 4 backward for each weight of H, U and W."""
        p = self.params
        return 6 * sum(w.size for w in (p.H_KxP, p.U_VxK, p.W_VxP) if w is not None)


def make_problem(config: ConfigDict, V: int, B: int, S: int, turns: int, block_size: int = 0) -> Problem:
    """Words drawn by Zipf's law, so that frequent words meet in a batch as they do in a text.

    The config's learning rate is for its own batch; a smaller one gets a rate smaller by as much.
    block_size: ours holds the scores of so many examples at once; as many as the config says when 0.
    """
    config = ConfigDict(config.to_dict())
    config.optimizer.learning_rate *= min(1.0, B / config.train.batch_size)
    config.train.batch_size = B
    config.output.block_size = block_size or config.output.block_size
    wanted = config_lib.from_config(config)
    share_V = 1 / np.arange(1, V + 1)
    share_V /= share_V.sum()
    random = np.random.default_rng(wanted.seed)
    T = S * B + wanted.model.n
    tokens_T = random.choice(V, T, p=share_V).astype(np.int32)
    order_SxB = random.permutation(T)[: S * B].reshape(S, B).astype(np.int32)
    bias_V = np.log(share_V).astype(np.float32) if wanted.model.unigram_bias else None
    with jax.default_device(jax.devices('cpu')[0]):  # nothing of this in an accelerator's peak memory
        params = jax.tree.map(np.asarray, nplm.init(jax.random.key(wanted.seed), wanted.model, V, bias_V))
    return Problem(config, params, tokens_T, order_SxB, S * turns)


def ours(problem: Problem, precision: str) -> Turn:
    """nplm_jax.training.train_steps, as launch.py runs it."""
    config = ConfigDict(problem.config.to_dict())
    config.output.precision = precision
    wanted = config_lib.from_config(config)
    optimizer = optimizers.build(wanted.optimizer, problem.total_steps, wanted.train.batch_size)
    params = jax.tree.map(jnp.array, problem.params)
    state = loop.TrainState(params, optimizer.init(params), jnp.zeros((), jnp.int32))
    tokens_T, order_T = jnp.asarray(problem.tokens_T), jnp.asarray(problem.order_SxB.ravel())

    def turn():
        nonlocal state
        state, nll_S = loop.train_steps(
            state, tokens_T, order_T, 0, wanted, problem.total_steps, len(problem.order_SxB)
        )
        return np.asarray(nll_S)

    return turn


def ours_pallas(problem: Problem, precision: str) -> Turn:
    """Ours with pallas_loss.py, a kernel for GPUs, in place of softmax.mean_nll."""
    return _scan(problem, functools.partial(_pallas_loss, precision=precision))


def plain_jax(problem: Problem, precision: str) -> Turn:
    """The same in the first form that comes to mind: jax.grad of log_softmax of the B x V scores, and a scan."""
    return _scan(problem, functools.partial(_plain_loss, precision=precision))


def _scan(problem, loss) -> Turn:
    """Turns of a loss that takes (params, contexts_BxN, targets_B, key, wanted) and returns NLL + R, and the NLL."""
    wanted = config_lib.from_config(problem.config)
    optimizer = optimizers.build(wanted.optimizer, problem.total_steps, wanted.train.batch_size)
    loss = functools.partial(loss, wanted=wanted)

    def step(state, positions_B, tokens_T):
        params, opt_state, key = state
        key, key_step = jax.random.split(key)
        contexts_BxN, targets_B = dataset.windows(tokens_T, positions_B, wanted.model.n - 1)
        (_, nll), gradients = jax.value_and_grad(loss, has_aux=True)(params, contexts_BxN, targets_B, key_step)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state, key), nll

    def steps(state, tokens_T, order_SxB):
        return jax.lax.scan(functools.partial(step, tokens_T=tokens_T), state, order_SxB)

    steps = jax.jit(steps, donate_argnums=0)
    params = jax.tree.map(jnp.array, problem.params)
    state = (params, optimizer.init(params), jax.random.key(wanted.seed))
    tokens_T, order_SxB = jnp.asarray(problem.tokens_T), jnp.asarray(problem.order_SxB)

    def turn():
        nonlocal state
        state, nll_S = steps(state, tokens_T, order_SxB)
        return np.asarray(nll_S)

    return turn


def _pallas_loss(params, contexts_BxN, targets_B, key, wanted, precision):
    """As objective.penalised_nll."""
    from experiments.speed import pallas_loss  # noqa: PLC0415 (only a GPU needs it)

    parts = nplm.output_parts(params, contexts_BxN, wanted.model.dropout, key)
    nll = pallas_loss.mean_nll(parts, params.b_V, targets_B, precision)
    return nll + objective.regulariser(params, wanted.optimizer.weight_decay), nll


def _plain_loss(params, contexts_BxN, targets_B, key, wanted, precision):
    """Mean NLL + R, and mean NLL; bfloat16 rounds the inputs of the matrix products."""

    def linear(inputs_BxD, weights_ExD):
        product = inputs_BxD.astype(precision) @ weights_ExD.astype(precision).T
        return product.astype(jnp.float32)

    def drop(key, values):
        rate = wanted.model.dropout
        return jnp.where(jax.random.bernoulli(key, 1 - rate, values.shape), values / (1 - rate), 0) if rate else values

    key_x, key_a = jax.random.split(key)
    x_BxP = drop(key_x, params.C_VxM[contexts_BxN].reshape(len(contexts_BxN), -1))
    y_BxV = params.b_V[None, :]
    if params.U_VxK is not None:
        a_BxK = drop(key_a, jnp.tanh(linear(x_BxP, params.H_KxP) + params.d_K[None, :]))
        y_BxV = y_BxV + linear(a_BxK, params.U_VxK)
    if params.W_VxP is not None:
        y_BxV = y_BxV + linear(x_BxP, params.W_VxP)
    log_p_BxV = jax.nn.log_softmax(y_BxV)
    nll = -jnp.mean(jnp.take_along_axis(log_p_BxV, targets_B[:, None], axis=1))
    return nll + objective.regulariser(params, wanted.optimizer.weight_decay), nll


def find(name: str) -> Callable[[Problem, str], Turn]:
    """The contestant of that name; those of PyTorch import it only here."""
    if name.startswith('torch'):
        from experiments.speed import torch_contestants  # noqa: PLC0415 (an optional package)

        return getattr(torch_contestants, name)
    return {'ours': ours, 'ours_pallas': ours_pallas, 'plain_jax': plain_jax}[name]


def alternate(turns: Mapping[str, Turn], rounds: int) -> dict[str, list[float]]:
    """Seconds of each turn, `rounds` of each contestant, one after the other; every second round backwards.

    One turn of each goes before, uncounted: compilation.
    """
    for turn in turns.values():
        turn()
    seconds = {name: [] for name in turns}
    for i in range(rounds):
        for name in list(turns)[:: -1 if i % 2 else 1]:
            started = time.perf_counter()
            turns[name]()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def define_several(name: str, allowed: Iterable[str], what: str) -> flags.FlagHolder[list[str]]:
    """A flag that takes some of `allowed`, all of them when not given."""
    allowed = list(allowed)
    holder = flags.DEFINE_list(name, allowed, f'{what}: some of {", ".join(allowed)}.')
    message = f'must be some of {", ".join(allowed)}'
    flags.register_validator(name, lambda given: bool(given) and set(given) <= set(allowed), message)
    return holder
