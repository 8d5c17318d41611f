"""Tests the paper's network: equation 1 by hand and by a loop, the order of the context, and rejected inputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    features_of,
    loss_of,
    make_batch,
    make_network,
    others_nightly,
    penalised_nll,
    small_settings,
    start_training,
)
from jax.test_util import check_grads

from nplm_jax.data.batches import Batch
from nplm_jax.models import nplm
from nplm_jax.training import step

V = 31
SHAPES = [(4, 3, 5, True), (4, 3, 5, False), (3, 7, 0, True), (2, 1, 1, False)]  # n, m, h, direct
CONTEXTS = jnp.asarray(np.random.default_rng(0).integers(0, V, (7, 3)), jnp.int32)


def make(n, m, h, direct, bias_V=None, **changes):
    network = make_network(V, {'model.n': n, 'model.m': m, 'model.h': h, 'model.direct': direct, **changes})
    return network, network.init(jax.random.key(3), bias_V)


def log_probabilities(network, params, contexts_BxN):
    return network.output.log_probabilities(params, features_of(network, params, contexts_BxN)[0])


def equation_1(params, context_N):
    """Returns y of every word by the paper's equation 1, in float64; the context is in reading order."""
    C, H, d, U, W, b = (
        None if (array := params.get(name)) is None else np.float64(array)
        for name in ('C_VxM', 'H_KxP', 'd_K', 'U_VxK', 'W_VxP', 'b_V')
    )
    x = np.concatenate([C[w] for w in reversed(context_N)])  # C(w_{t-1}), ..., C(w_{t-n+1})
    y = np.zeros(V)
    for i in range(V):
        y[i] = b[i]
        if W is not None:
            y[i] += sum(W[i, j] * x[j] for j in range(len(x)))
        if U is not None:
            y[i] += sum(U[i, k] * np.tanh(d[k] + sum(H[k, j] * x[j] for j in range(len(x)))) for k in range(len(d)))
    return y


@pytest.mark.parametrize('n,m,h,direct', SHAPES)
def test_equation_1_is_the_papers_loop_and_what_training_uses(n, m, h, direct):
    network, params = make(n, m, h, direct)
    params = jax.tree.map(lambda x: 3 * x + 0.1, params)  # no array is zero
    contexts = CONTEXTS[:, : n - 1]
    y_BxV = nplm.logits(params, contexts)
    assert y_BxV.shape == (7, V) and y_BxV.dtype == jnp.float32
    np.testing.assert_allclose(y_BxV, [equation_1(params, c) for c in np.asarray(contexts)], rtol=1e-5, atol=1e-5)
    log_p_BxV = jax.nn.log_softmax(y_BxV, axis=1)
    np.testing.assert_allclose(log_probabilities(network, params, contexts), log_p_BxV, rtol=1e-5, atol=1e-5)
    loss, _ = loss_of(network, params, make_batch(contexts, jnp.arange(7)))  # in blocks, as in training
    assert float(loss) == pytest.approx(-float(log_p_BxV[jnp.arange(7), jnp.arange(7)].mean()), rel=1e-5)


@pytest.mark.parametrize('n,m,h,direct', SHAPES)
def test_gradients_equal_finite_differences(n, m, h, direct):
    network, params = make(n, m, h, direct)

    def loss(params):
        return penalised_nll(params, network, make_batch(CONTEXTS[:, : n - 1], jnp.arange(7)), 0.1)[0]

    check_grads(loss, (params,), 1, ['rev'], 2e-2, 2e-2)


@pytest.mark.parametrize('family,n', [('nplm', 4), ('gru', 4)])
@pytest.mark.parametrize('kind', others_nightly(['full', 'nce'], ('full',)))
def test_contexts_of_another_width_are_refused(family, n, kind):
    """A recurrent body would predict more words than targets; n = 2 would read a vector of words as a single word."""
    changes = {'model.family': family, 'model.n': n, 'model.direct': False, 'output.kind': kind, 'output.samples': 9}
    settings = small_settings({**changes, 'train.batch_size': 6, 'model.bptt_length': 1})
    program, state, inputs = start_training(settings, V, 9)
    network, params, N = program.network, state.params, program.network.body.lookback + 1
    targets_Bx1, carry = jnp.arange(6)[:, None], network.body.start(6)
    inputs = inputs.replace(extras=network.output.make_extras(np.arange(V), V))
    batch = lambda contexts: Batch(contexts, targets_Bx1, jnp.arange(6), extras=inputs.extras)  # noqa: E731
    with_targets = [
        lambda contexts: loss_of(network, params, batch(contexts), carry, jax.random.key(0)),
        lambda contexts: step.train_step(program, state, batch(contexts)),
    ]
    calls = [(call, shape) for call in with_targets for shape in ((6, N + 1), (6, N - 1))]
    calls += [(lambda contexts: features_of(network, params, contexts, carry), shape) for shape in ((6,), (6, N, 1))]
    for call, shape in calls:
        with pytest.raises(ValueError):
            call(jnp.zeros(shape, jnp.int32))
    if family == 'nplm':
        with pytest.raises((ValueError, TypeError)):
            nplm.logits(params, jnp.zeros((6, N + 1), jnp.int32))
        with pytest.raises(ValueError):
            nplm.logits(params, jnp.zeros(6, jnp.int32))
