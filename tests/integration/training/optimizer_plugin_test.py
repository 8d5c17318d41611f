"""Tests that Optax optimizers named by import path give the same results as a plain Optax loop."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import (
    DATA,
    check_resumed,
    check_together,
    default_settings,
    loss_of,
    make_batch,
    others_nightly,
    refuses,
    run_chunk,
    same_bits,
    small_settings,
    start_training,
    train,
)
from optax.contrib import MuonDimensionNumbers

from nplm_jax.runs.experiment import load_settings
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import optimizer_plugin
from nplm_jax.training import step as step_lib
from nplm_jax.training.optimizers import make_optimizer
from nplm_jax.training.step import evaluation_params

STEPS = 50
SAME = {
    'optimizer.tables': 'same',
    'optimizer.table_rate': 1.0,
    'optimizer.decay': 0.0,
    'model.dropout': 0.0,
}
MATRICES = {'C_VxM': (0, 1), 'U_VxK': (0, 1), 'W_VxP': (0, 1), 'H_KxP': (1, 0)}  # (in, out); tables are as they are
DIMENSIONS = {name: MuonDimensionNumbers(*axes) for name, axes in MATRICES.items()} | {'b_V': None, 'd_K': None}
OPTIMIZERS = {
    'optax.contrib:muon': lambda rate: optax.contrib.muon(rate, muon_weight_dimension_numbers=DIMENSIONS),
    'optax:lion': lambda rate: optax.lion(rate, weight_decay=0.0),
    'optax.contrib:prodigy': lambda rate: optax.contrib.prodigy(rate, estim_lr0=0.001),
    'optax:adamw': lambda rate: optax.adamw(rate, weight_decay=0.0),
    'optax.contrib:ademamix': optax.contrib.ademamix,
    'optax.contrib:schedule_free_adamw': optax.contrib.schedule_free_adamw,
}
RATES = {'optax:lion': 0.003, 'optax.contrib:prodigy': 1.0}


def by_name(name, changes=None):
    """Returns small settings for an optimizer named by import path, which updates all parameters."""
    rate = {'optimizer.name': name, 'optimizer.learning_rate': RATES.get(name, 0.02)}
    options = {'optimizer.options.estim_lr0': 0.001} if 'prodigy' in name else {}
    return small_settings({**SAME, **rate, **options, **(changes or {})})


def batches(network, num_steps):
    """Returns contexts and targets for `num_steps` updates; the last word of a context determines the target."""
    contexts = np.random.default_rng(0).integers(0, network.vocabulary_size, (num_steps, 7, network.body.reach))
    return contexts.astype(np.int32), ((contexts[:, :, -1] + 1) % network.vocabulary_size).astype(np.int32)


def by_the_project(settings, network, num_steps):
    """Returns the losses of updates by this package, the last parameters and the parameters for evaluation."""
    program, state, inputs = start_training(settings, network.vocabulary_size, num_steps)
    losses = []
    update = jax.jit(lambda state, *batch: step_lib.train_step(program, state, make_batch(*batch)))
    for batch in zip(*batches(network, num_steps)):
        state, nll = update(state, *batch)
        losses.append(float(nll))
    return losses, state.params, evaluation_params(program, state)


def by_optax(tx, params, network, num_steps):
    """Returns the losses of updates by a plain Optax loop, the last parameters and the parameters for evaluation."""
    state, losses = tx.init(params), []

    @jax.jit
    def update(params, state, contexts, targets):
        nll, grads = jax.value_and_grad(lambda params: loss_of(network, params, make_batch(contexts, targets))[0])(
            params
        )
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, nll

    for batch in zip(*batches(network, num_steps)):
        params, state, nll = update(params, state, *batch)
        losses.append(float(nll))
    is_free = isinstance(state, optax.contrib.ScheduleFreeState)
    return losses, params, optax.contrib.schedule_free_eval_params(state, params) if is_free else params


def start(settings):
    program, state, _ = start_training(settings, 17, STEPS)
    return program.network, state.params


@pytest.mark.parametrize('schedule', others_nightly(['cosine', 'constant'], ('cosine',)))
@pytest.mark.parametrize('name', OPTIMIZERS)
def test_the_losses_are_those_of_optaxs_own_loop(name, schedule):
    settings = by_name(name, {'optimizer.schedule': schedule, 'train.epochs': 1})
    network, params = start(settings)
    rate = RATES.get(name, 0.02)
    rate = optax.cosine_decay_schedule(rate, STEPS) if schedule == 'cosine' else rate
    expected = by_optax(OPTIMIZERS[name](rate), params, network, STEPS)
    got = by_the_project(settings, network, STEPS)
    assert np.mean(expected[0][-5:]) < 0.99 * expected[0][0]  # the loss has decreased
    print(f'{name}, {schedule}: {got[0][-1]:.6f} here, {expected[0][-1]:.6f} by Optax')
    np.testing.assert_allclose(got[0], expected[0], atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), got[1:], expected[1:])


@pytest.mark.parametrize('name', ['sgd', 'adamw'])
def test_a_schedule_free_optimizer_reaches_the_target_at_its_evaluation_parameters(name):
    name = f'optax.contrib:schedule_free_{name}'
    changes = {'optimizer.name': name, 'optimizer.schedule': 'constant', 'optimizer.learning_rate': 0.1, **SAME}
    settings, target = default_settings(changes), jnp.array([1.0, 2.0, 3.0])
    rule, plain = settings.optimizer, getattr(optax.contrib, name.partition(':')[2])(0.1)
    optimizer = make_optimizer(rule, 1, 1, ())
    params = own = {'d': jnp.zeros(3)}
    state, own_state = optimizer.init(params, rule.hyperparams), plain.init(own)
    grads = jax.grad(lambda params: jnp.sum(jnp.square(params['d'] - target)))

    @jax.jit
    def update(params, state, own, own_state, step):
        updates, state = optimizer.update(grads(params), state, params, step=step)
        own_updates, own_state = plain.update(grads(own), own_state, own)
        return optax.apply_updates(params, updates), state, optax.apply_updates(own, own_updates), own_state

    for step in range(1000):
        params, state, own, own_state = update(params, state, own, own_state, step)
    reached = optimizer_plugin.evaluation_params(state, params, frozenset())['d']
    np.testing.assert_allclose(reached, optax.contrib.schedule_free_eval_params(own_state, own)['d'], atol=1e-6)
    np.testing.assert_allclose(reached, target, atol=2e-3)


def test_a_run_evaluates_and_returns_the_evaluation_parameters(tmp_path):
    settings = by_name('optax.contrib:schedule_free_adamw', {'train.patience': 99, 'train.epochs': 1})
    run = prepare_run(settings, DATA)
    state = run.init_state()
    for first in range(0, run.schedule.total_steps, 4):
        state, *_ = run_chunk(run.chunk(state, first))
    best, *_ = train(settings, tmp_path)
    inner = state.opt_state.inner_state
    free = jax.tree.leaves(inner, is_leaf=lambda s: isinstance(s, optax.contrib.ScheduleFreeState))[0]
    expected = optax.contrib.schedule_free_eval_params(free, {**state.params, 'H_KxP': state.params['H_KxP'].T})
    expected['H_KxP'] = expected['H_KxP'].T
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), best, expected)
    assert not np.allclose(best['H_KxP'], state.params['H_KxP'], atol=1e-4)


@pytest.mark.nightly
@pytest.mark.parametrize('tables', ['same', 'rowwise_adam'])
def test_a_schedule_free_run_resumes_bit_for_bit(tables, tmp_path):
    changes = {'optimizer.tables': tables, 'optimizer.table_rate': 2.0, 'optimizer.decay': 0.01}
    check_resumed(by_name('optax.contrib:schedule_free_adamw', changes), tmp_path)


@pytest.mark.parametrize('name', ['optax:adamw', 'optax:lion'])
def test_weights_decay_once_and_vectors_do_not(name):
    settings = by_name(name, {'optimizer.decay': 0.5, 'train.epochs': 1, 'optimizer.schedule': 'linear'})
    network, params = start(settings)
    mask = jax.tree.map(lambda leaf: leaf.ndim > 1, params)
    rate = optax.linear_schedule(RATES.get(name, 0.02), 0.0, STEPS)
    tx = getattr(optax, name.partition(':')[2])(rate, weight_decay=0.5, mask=mask)
    expected, got = by_optax(tx, params, network, STEPS), by_the_project(settings, network, STEPS)
    np.testing.assert_allclose(got[0], expected[0], atol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), got[1], expected[1])


def test_weight_decay_shrinks_all_sequences_of_a_schedule_free_optimizer():
    changes = {**SAME, 'optimizer.name': 'optax.contrib:schedule_free_sgd', 'optimizer.decay': 0.5}
    settings = default_settings({**changes, 'optimizer.learning_rate': 0.1, 'optimizer.schedule': 'constant'})
    optimizer = make_optimizer(settings.optimizer, 1, 1, ())
    params = {'H': jnp.ones((2, 2)), 'd': jnp.ones(2)}
    state, zeros = optimizer.init(params, settings.optimizer.hyperparams), jax.tree.map(jnp.zeros_like, params)
    for step in range(20):
        updates, state = optimizer.update(zeros, state, params, step=step)
        params = optax.apply_updates(params, updates)
    for found in (params, optimizer_plugin.evaluation_params(state, params, frozenset())):
        np.testing.assert_allclose(found['H'], 0.95**20, rtol=1e-5)
        np.testing.assert_allclose(found['d'], 1.0, rtol=1e-6)


def test_the_rate_of_tables_is_a_multiple_with_one_optimizer_for_all():
    settings = by_name('optax:sgd', {'optimizer.table_rate': 3.0, 'optimizer.schedule': 'constant', 'train.epochs': 1})
    network, params = start(settings)
    rates = {name: optax.sgd(0.06 if name[1:3] == '_V' else 0.02) for name in params}
    tx = optax.partition(rates, {name: name for name in params})
    expected, got = by_optax(tx, params, network, 5), by_the_project(settings, network, 5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), got[1], expected[1])


@pytest.mark.parametrize(
    'family', ['nplm', 'rnn', 'gru', 'lstm', 'mogrifier', 'attentive_mogrifier', 'residual', 'window_lstm']
)
def test_the_matrices_of_every_body_are_in_by_out(family):
    sizes = {'model.family': family, 'model.m': 3, 'model.h': 5, 'train.batch_size': 8, 'model.bptt_length': 4}
    direct = {'model.direct': family == 'nplm', 'model.rounds': 2, 'model.n': 4}
    network = network_from_settings(small_settings({**sizes, **direct}), 17)
    inputs = {'nplm': 9, 'residual': (3 + network.body.averages) * 3 if family == 'residual' else 0}.get(family, 3)
    widths = {  # for each matrix name: (in, out)
        **dict.fromkeys(['H_KxP', 'H_PxK'], (inputs, 5)),
        'W_h_KxK': (5, 5),
        **dict.fromkeys(['W_e_KxM', 'R_2_DxK', 'A_MxK'], (3, 5)),
        'Q_1_KxD': (5, 3),
    }
    params = jax.eval_shape(lambda: network.init(jax.random.key(0)))
    checked = 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        name = path[-1].key
        if leaf.ndim > 1 and name in widths:
            shape = leaf.shape[::-1] if name in network.tables.units else leaf.shape
            assert shape == widths[name], name
            checked += 1
    assert checked == {'nplm': 1, 'rnn': 2, 'residual': 1, 'mogrifier': 2, 'attentive_mogrifier': 3}.get(family, 0)
    assert set(network.tables.units) <= set(widths)


@pytest.mark.nightly
@pytest.mark.parametrize('name', ['optax.contrib:schedule_free_adamw', 'optax.contrib:muon'])
def test_chunks_of_any_length_give_the_same_state(name):
    ends = []
    for num_steps in (1, 20, 50):
        run = prepare_run(by_name(name, {'train.epochs': 2, 'train.steps_per_execution': num_steps}), DATA)
        state, step = run.init_state(), 0
        while step < 50:
            chunk = run.chunk(state, step)
            chunk = chunk._replace(num_steps=min(chunk.num_steps, 50 - step))
            state, *_ = run_chunk(chunk)
            step += chunk.num_steps
        ends.append((state.params, state.opt_state))
    for end in ends[1:]:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-6), end, ends[0])


@pytest.mark.parametrize('schedule', others_nightly(['cosine', 'constant'], ('cosine',)))
@pytest.mark.parametrize('name', ['optax.contrib:schedule_free_adamw', 'optax.contrib:prodigy', 'optax:lion'])
def test_searched_rates_share_a_program_and_give_single_runs(name, schedule):
    rates = [{'optimizer.learning_rate': rate, 'optimizer.decay': rate} for rate in (0.3, 0.03)]
    settings = [by_name(name, {'optimizer.schedule': schedule, **rate}) for rate in rates]
    assert prepare_run(settings[0], DATA).program == prepare_run(settings[1], DATA).program
    ends = check_together(settings)
    assert not same_bits(*ends)


def no_rate(momentum=0.9):
    """Takes no learning rate, so it is not a factory."""
    return optax.trace(momentum)


def needs_a_number(learning_rate):
    """Supports only a constant rate."""
    return optax.scale(-1.0 * learning_rate)


def needs_a_value(learning_rate):
    """Requires the value of the loss in addition to gradients."""
    return optax.contrib.momo(learning_rate)


@pytest.mark.parametrize(
    'changes,key,said',
    [
        ({'optimizer.name': 'optax:scale_by_adam'}, 'optimizer.name', 'learning_rate'),
        ({'optimizer.name': 'optax:polyak_sgd'}, 'optimizer.name', 'learning_rate'),
        ({'optimizer.name': f'{__name__}:no_rate'}, 'optimizer.name', 'learning_rate'),
        ({'optimizer.name': f'{__name__}:needs_a_number'}, 'optimizer.name', 'learning_rate'),
        (
            {'optimizer.name': 'optax:adamw', 'optimizer.options.weight_decay': 0.1},
            'optimizer.options.weight_decay',
            'optimizer.decay',
        ),
        (
            {'optimizer.name': 'optax:adamw', 'optimizer.tables': 'same', 'optimizer.row_adaptivity': 0.3},
            'optimizer.row_adaptivity',
            'optimizer.tables',
        ),
    ],
)
def test_a_factory_that_cannot_be_used_is_refused_in_one_line(changes, key, said):
    with refuses(key) as caught:
        load_settings(changes)
    assert said in caught.value.problem and '\n' not in str(caught.value)


def test_a_factory_of_a_number_is_used_where_the_rate_is_constant():
    load_settings({'optimizer.name': f'{__name__}:needs_a_number', 'optimizer.schedule': 'constant'})


def test_an_optimizer_that_needs_more_than_gradients_is_refused_in_one_line(tmp_path):
    with refuses('optimizer.name'):
        train(by_name(f'{__name__}:needs_a_value'), tmp_path)


def test_an_average_beside_the_evaluation_parameters_is_refused(tmp_path):
    changes = {'optimizer.name': 'optax.contrib:schedule_free_adamw', 'train.average': 0.9}
    with refuses('train.average'):
        train(small_settings(changes), tmp_path)


def counting(learning_rate):
    """Keeps Python numbers in its initial state."""

    def update(gradients, state, params=None):
        rate = -0.1 * state['decay'] / (1 + state['count'])
        return jax.tree.map(lambda x: rate * x, gradients), {'count': state['count'] + 1, 'decay': state['decay'] * 0.9}

    return optax.GradientTransformation(lambda params: {'count': 0, 'decay': 1.0}, update)


def test_an_optimizer_with_numbers_in_its_state_trains_and_resumes_bit_for_bit(tmp_path):
    check_resumed(by_name(f'{__name__}:counting'), tmp_path)


def noisy(learning_rate):
    return optax.noisy_sgd(learning_rate, key=1)


def test_a_random_key_in_the_state_is_refused_at_the_start():
    with refuses('optimizer.name'):
        optimizer_plugin.load('my:noisy', noisy, {})(0.1).init({'d_K': jnp.zeros(3)})


def test_a_plug_in_without_a_matrix_to_update_is_refused():
    settings = small_settings(
        {'optimizer.name': 'optax:lion', 'optimizer.tables': 'rowwise_adam', 'model.h': 0, 'model.direct': True}
    )
    with refuses('optimizer.tables'):
        start_training(settings, 9, STEPS)
