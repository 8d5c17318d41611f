"""Tests every body with every output layer, and compares sparse updates with dense computation.

`BODY=NAME python -m pytest tests/integration/models/seams_test.py` tests one body, with all its output
layers.
"""

import os
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import (
    DATA,
    ENERGY,
    IMPORTANCE,
    SENSES,
    SPARSE,
    covering_pairs,
    features_of,
    others_nightly,
    register,
    regularizer,
    small_settings,
    start_training,
)

from experiments.paper.section5.plugins.importance import ImportanceSampling
from nplm_jax.config.registry import KINDS, NETWORKS, component_class
from nplm_jax.data.batches import make_batch
from nplm_jax.models import network_reading
from nplm_jax.models.body import by_example
from nplm_jax.outputs.output_layer import SparseOutputLayer
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import gradients as gradients_lib
from nplm_jax.training import sparse_rows, step

V = len(DATA.vocabulary)
TIED = {
    'lstm, tied': {'model.layers': 2, 'model.variational': True, 'model.dropout': 0.2, 'model.weight_dropout': 0.1},
    'residual, tied': {'model.layers': 2, 'model.word_dropout': 0.1, 'model.averages': 2},
}
SAMPLED = ('sampled', 'nce')
LAYERS = {kind: component_class('output.kind', kind) for kind in KINDS['output.kind'].paths}
LAYERS[IMPORTANCE] = ImportanceSampling
KINDS = {body: tuple(LAYERS) for body in (*NETWORKS, 'bag', SENSES)}
KINDS[ENERGY] = SAMPLED
KINDS |= {body: tuple(kind for kind in LAYERS if kind != 'tree') for body in TIED}
SPARSE_KINDS = [kind for kind, layer in LAYERS.items() if issubclass(layer, SparseOutputLayer)]
ONLY = os.environ.get('BODY', '')
assert not ONLY or ONLY in KINDS, f'BODY={ONLY}: must be one of {", ".join(KINDS)}'
KINDS = {body: kinds for body, kinds in KINDS.items() if ONLY in ('', body)}
QUICK = (ONLY, 'nplm')  # the other pairs are tested nightly
WITH_ALL = (ONLY, 'nplm', 'lstm', 'lstm, tied')  # a window, a body with a state, and a body with weight tying
FEW = {} if ONLY else dict.fromkeys(TIED, ('full', 'two_level'))
UPDATED = covering_pairs(KINDS | FEW, WITH_ALL, always='full')
COMPARED = covering_pairs({body: [k for k in SPARSE_KINDS if k in kinds] for body, kinds in KINDS.items()}, WITH_ALL)
POSITIONS = np.arange(3, 19, dtype=np.int32)  # 4 streams of 4 words; words occur more than once


@pytest.fixture(autouse=True)
def bag_of_features(monkeypatch):
    """Registers an additional body."""
    register(monkeypatch, 'model.family', 'bag', 'bag_of_features:BagOfFeatures')


def make_settings(body, kind, **changes):
    body, tied = body.partition(',')[0], TIED.get(body)
    model = {'model.family': body, 'model.direct': body == 'nplm', 'model.m': 6, 'model.h': 7, 'output.kind': kind}
    model |= {'model.heads': 1}
    train = {'train.batch_size': 16, 'model.bptt_length': 4, 'train.steps_per_execution': 100}
    return small_settings({**SPARSE, **model, **train, **({**tied, 'model.tied': True} if tied else {}), **changes})


@pytest.mark.parametrize('body,kind', others_nightly(UPDATED, QUICK))
def test_updates_lower_the_loss_of_one_distribution(body, kind):
    recipe = {'optimizer.name': 'adam', 'optimizer.learning_rate': 0.03, 'optimizer.schedule': 'constant'}
    epochs = 9 if body.endswith('Energy') else 3  # because its gradients pass through three small factors
    run = prepare_run(make_settings(body, kind, **recipe, **{'train.epochs': epochs}), DATA)
    network, state = run.program.network, run.init_state()

    @jax.jit
    def exact(params):
        """Returns log P of all words at each training position, and the NLL of the training words."""
        state, ids, targets = network_reading.stream_blocks(network, DATA.tokens_T, DATA.train, len(DATA.train))
        features = by_example(network_reading.read(network, params, state, ids)[0])
        return network.output.log_probabilities(params, features), network.output.nll(params, features, targets[0])

    before = exact(state.params)[1].mean()
    for _ in range(epochs):
        state, nll_S = step.execute_steps(*run.chunk(state, int(state.step)))
        assert np.isfinite(nll_S).all()
    log_p_BxV, nll_B = exact(state.params)
    assert nll_B.mean() < before - 0.3
    assert log_p_BxV.shape == (len(DATA.train), V) and log_p_BxV.dtype == jnp.float32
    np.testing.assert_allclose(np.exp(np.float64(log_p_BxV)).sum(1), 1, atol=1e-6)
    targets = np.asarray(DATA.train_words)
    np.testing.assert_allclose(nll_B, -np.asarray(log_p_BxV)[np.arange(len(targets)), targets], rtol=1e-5, atol=1e-5)


def dense_loss(params, network, batch, carry, key):
    """Returns the loss of a sparse output layer from the scores of all words, and the next state of the streams."""
    key, key_rows = jax.random.split(key)
    targets, proposal = batch.targets_B, batch.extras
    features, carry = features_of(network, params, batch.ids_SxL, carry, key)
    if proposal is None:  # the loss of two_level is exact
        return network.output.nll(params, features, targets).mean(), carry
    y_VxB = network.output.scorer.scores(params, features)
    if type(network.output) is ImportanceSampling:
        words_BxL, _, draws = network.output.rows(batch, key_rows)
        y_BxL = jnp.take_along_axis(y_VxB.T, words_BxL, axis=1)
        others_BxL = jnp.exp(y_BxL - draws.log_q_BxL)[:, 1:] * (words_BxL != targets[:, None])[:, 1:]
        return jnp.mean(jnp.log(jnp.exp(y_BxL[:, 0]) + others_BxL.mean(axis=1)) - y_BxL[:, 0]), carry
    log_odds_VxB = y_VxB - proposal.log_inclusion_prob_V[:, None]
    samples_S = network.output.rows(batch, key_rows).shared_S
    y_target_B = y_VxB[targets, jnp.arange(16)]
    if type(network.output) is LAYERS['nce']:
        told_B = jax.nn.softplus(-log_odds_VxB[targets, jnp.arange(16)])
        return jnp.mean(told_B + jax.nn.softplus(log_odds_VxB[samples_S]).sum(0)), carry
    others_SxB = jnp.where(samples_S[:, None] == targets[None, :], -jnp.inf, log_odds_VxB[samples_S])
    return jnp.mean(jax.nn.logsumexp(jnp.vstack([others_SxB, y_target_B[None]]), axis=0) - y_target_B), carry


def assert_close(actual, expected, atol):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(actual), jax.tree.leaves(expected), strict=True):
        scale = max(1.0, float(np.abs(b).max(initial=0)))
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=atol * scale, err_msg=jax.tree_util.keystr(path))


def start(settings):
    """Returns a training with large parameters, its batch, and the sampling distribution of its output layer."""
    program, state, inputs = start_training(settings, V, 100)
    state = state.replace(params=jax.tree.map(lambda x: 3 * x + 0.1, state.params))
    inputs, body = inputs.replace(extras=program.network.output.make_extras(DATA.train_words, V)), program.network.body
    positions_SxT = POSITIONS.reshape(-1, body.layout.bptt_length)
    return (
        program,
        state,
        inputs,
        make_batch(DATA.tokens_T, positions_SxT, body.layout.lookback)._replace(extras=inputs.extras),
    )


@pytest.mark.parametrize('body,kind', others_nightly(COMPARED, QUICK))
def test_sparse_gradients_are_the_dense_gradients_of_the_same_loss(body, kind):
    program, state, _, batch = start(make_settings(body, kind))
    network, key = program.network, jax.random.key(9)

    @jax.jit
    def both(params):
        gradients = gradients_lib.gradients(params, network, batch, state.carry, key, program.sharding)
        dense = jax.grad(dense_loss, has_aux=True)(params, network, batch, state.carry, key)
        return (
            sparse_rows.scatter_to_dense(gradients.view, batch, params, network, program.sharding),
            gradients.carry,
            *dense,
        )

    grads, carry, expected, expected_carry = both(state.params)
    # Norms amplify rounding errors. If each parameter changes by one rounding, the gradients change by 8e-4 (residual),
    # 1.4e-5 (Transformers) or 3e-7 (others).
    assert_close(grads, expected, {'residual': 1e-3, 'transformer': 3e-5}.get(re.split('[,_]', body)[0], 1e-6))
    assert_close(carry, expected_carry, 1e-6)


OPTIMIZERS = {
    'adam': ({'optimizer.name': 'adam', 'optimizer.learning_rate': 0.01}, optax.adam(0.01)),
    'clip_norm': ({'optimizer.clip_norm': 0.05}, optax.chain(optax.clip_by_global_norm(0.05), optax.sgd(0.5))),
}


@pytest.mark.nightly
@pytest.mark.parametrize(
    'body,kind,optimizer',
    [
        *(('nplm', kind, 'adam') for kind in SPARSE_KINDS),
        ('nplm', 'nce', 'clip_norm'),
        ('gru', 'two_level', 'clip_norm'),
    ],
)
def test_any_optimizer_updates_with_a_sparse_layer_as_with_dense_gradients(body, kind, optimizer):
    changes, reference = OPTIMIZERS[optimizer]
    settings = make_settings(body, kind, **changes, **{'optimizer.decay': 0.01, 'optimizer.schedule': 'constant'})
    program, state, inputs, batch = start(settings)
    assert not program.scatters_updates

    @jax.jit
    def expected_step(params, opt_state, carry, number):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(settings.seed), 2), number)

        def penalized(params):
            loss, next_carry = dense_loss(params, program.network, batch, carry, key)
            return loss + regularizer(params, 0.01), next_carry

        grads, carry = jax.grad(penalized, has_aux=True)(params)
        updates, opt_state = reference.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, carry

    expected = state.params, reference.init(state.params), state.carry
    train_step = jax.jit(step.train_step, static_argnames='program')
    for number in range(3):
        state, _ = train_step(program, state, batch)
        expected = expected_step(*expected, number)
    assert_close(state.params, expected[0], 2e-5)
