import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DATA, SPARSE, features_of, first_batch, others_nightly, regularizer, same_bits, small_settings

from nplm_jax.config.settings import replace
from nplm_jax.distributed.sharding import ONE_DEVICE
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import gradients as gradients_lib
from nplm_jax.training import sparse_rows
from nplm_jax.training import step as step_lib
from nplm_jax.training.deferred_decay import mix
from nplm_jax.training.step import execute_steps

NO_DROPOUT = {'model.dropout': 0.0, 'optimizer.decay': 0.0}
LSTM = {'model.family': 'lstm', 'model.direct': False, 'train.batch_size': 8, 'model.bptt_length': 4}


GRADIENTS = jax.jit(gradients_lib.gradients, static_argnames=('network', 'sharding'))
TRAIN_STEP = jax.jit(step_lib.train_step, static_argnums=0)


@pytest.mark.parametrize('changes', [{}, LSTM], ids=['nplm', 'lstm'])
def test_many_updates_in_one_execution_equal_one_at_a_time(changes):
    run = prepare_run(small_settings(changes), DATA)
    # The state is donated, so each execution needs a separate copy.
    B, chunk = run.program.batch_size, run.chunk(run.init_state(), 0)
    together, nll = execute_steps(run.program, run.init_state(), chunk.positions_T, 3 * B, 6, chunk.inputs)
    state, one_by_one = run.init_state(), []
    for first in range(3, 9):
        state, nll_S = execute_steps(run.program, state, chunk.positions_T, first * B, 1, chunk.inputs)
        one_by_one.extend(nll_S.tolist())
    np.testing.assert_allclose(nll, one_by_one, rtol=1e-6)
    for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(state), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize('kind', ['full', 'sampled'])
def test_output_weights_and_their_moments_keep_the_words_last_in_memory(kind):
    """The layout is read from the compiled loop over updates. With gathered rows, the layout does not change."""
    rule = 'adam' if kind == 'full' else 'sgd'
    settings = small_settings({'output.kind': kind, 'output.samples': 5, 'optimizer.name': rule})
    run = prepare_run(settings, DATA)
    V, K, P = len(DATA.vocabulary), settings.model.h, 3 * settings.model.m
    chunk = run.chunk(run.init_state(), 0)._replace(num_steps=3)
    (carried,) = [
        line.split(' while(')[0]
        for line in execute_steps.lower(*chunk).compile().as_text().splitlines()
        if ' while(' in line and f'f32[{V},{K}]' in line and f'f32[{V},{P}]' in line
    ]
    for shape in (f'f32[{V},{K}]', f'f32[{V},{P}]'):
        assert carried.count(f'{shape}{{0,1}}') == (3 if kind == 'full' else 0)
        assert carried.count(f'{shape}{{1,0}}') == (0 if kind == 'full' else 1)


@pytest.mark.parametrize('body', [{}, LSTM], ids=['nplm', 'lstm'])
def test_sparse_gradients_of_an_exact_loss_are_jaxs_of_the_mean_nll(body):
    run = prepare_run(small_settings({**SPARSE, **NO_DROPOUT, **body, 'output.kind': 'two_level'}), DATA)
    state, batch = run.init_state(), first_batch(run)
    network = run.program.network

    def nll_per_word(params):
        features, _ = features_of(network, params, batch.ids_SxL, state.carry)
        return network.output.nll(params, features, batch.targets_B).mean()

    gradients = GRADIENTS(state.params, network, batch, state.carry, jax.random.key(0), sharding=ONE_DEVICE)
    nll, expected = jax.jit(jax.value_and_grad(nll_per_word))(state.params)
    assert float(gradients.nll) == pytest.approx(float(nll), rel=1e-6)
    dense = sparse_rows.scatter_to_dense(gradients.view, batch, state.params, network, ONE_DEVICE)
    assert jax.tree.structure(dense) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(dense), jax.tree.leaves(expected)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.mark.nightly
@pytest.mark.parametrize('kind', ['sampled', 'nce', 'two_level'])
def test_rows_that_are_updated_alone_end_as_in_an_update_of_all_rows(kind):
    settings = small_settings({**SPARSE, **NO_DROPOUT, 'output.kind': kind})
    alone = prepare_run(settings, DATA)
    # A norm that is never reached does not change the gradients, but the optimizer is no longer plain SGD.
    dense = prepare_run(replace(settings, {'optimizer.clip_norm': 1e6}), DATA)
    assert alone.program.scatters_updates and not dense.program.scatters_updates
    states = []
    for run in (alone, dense):
        states.append(execute_steps(*run.chunk(run.init_state(), 0))[0])
    for a, b in zip(*(jax.tree.leaves(state.params) for state in states), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('kind', others_nightly(['sampled', 'nce', 'two_level'], ('sampled',)))
def test_rowwise_adam_ends_alike_whether_some_rows_or_all_are_updated(kind):
    rule = {'optimizer.name': 'rowwise_adam', 'optimizer.learning_rate': 0.01, 'optimizer.decay': 0.5}
    run = prepare_run(small_settings({**SPARSE, **NO_DROPOUT, **rule, 'output.kind': kind}), DATA)
    assert run.program.scatters_updates
    chunk = run.chunk(run.init_state(), 0)
    dense = chunk._replace(program=dataclasses.replace(chunk.program, scatters_updates=False), state=run.init_state())
    for a, b in zip(*(jax.tree.leaves(execute_steps(*c)[0]) for c in (chunk, dense)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('kind', ['full', 'nce'])
def test_rowwise_adam_decays_the_weights_apart_from_the_gradients(kind):
    rule = {'optimizer.name': 'rowwise_adam', 'optimizer.learning_rate': 0.01, 'optimizer.table_rate': 1.0}
    rule |= {'optimizer.schedule': 'constant'}
    states = []
    for decay in (0.0, 0.5):
        settings = {**SPARSE, **NO_DROPOUT, **rule, 'optimizer.decay': decay, 'output.kind': kind}
        run = prepare_run(small_settings({**settings, 'train.steps_per_execution': 1}), DATA)
        states.append(execute_steps(*run.chunk(run.init_state(), 0))[0].params)
    for before, a, b in zip(*map(jax.tree.leaves, (run.init_state().params, *states)), strict=True):
        np.testing.assert_allclose(b, a - 0.01 * 0.5 * before if a.ndim > 1 else a, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize('name', ['adam', 'adagrad'])
def test_with_other_optimizers_a_sparse_output_layer_decays_the_weights_in_each_update(name):
    settings = small_settings({**SPARSE, 'model.dropout': 0.0, 'output.kind': 'two_level', 'optimizer.name': name})
    decay = {'optimizer.decay': 0.1, 'optimizer.learning_rate': 1e-2, 'optimizer.schedule': 'constant'}
    run = prepare_run(replace(settings, decay), DATA)
    state, batch = run.init_state(), first_batch(run)
    network = run.program.network

    def penalized(params):
        features, _ = features_of(network, params, batch.ids_SxL)
        return network.output.nll(params, features, batch.targets_B).mean() + regularizer(params, 0.1)

    after, _ = TRAIN_STEP(run.program, state, batch)
    grads, rule = jax.jit(jax.grad(penalized))(state.params), run.program.optimizer.rule
    rule = rule.make()
    updates, _ = rule.update(grads, rule.init(state.params))
    for a, b, c in zip(*map(jax.tree.leaves, (after.params, state.params, updates)), strict=True):
        np.testing.assert_allclose(a, b - 1e-2 * c, rtol=1e-4, atol=1e-6)


def test_streams_start_anew_with_each_epoch():
    run = prepare_run(small_settings({**LSTM, 'model.dropout': 0.0}), DATA)
    initial, batch = run.init_state(), first_batch(run)
    per_epoch = run.program.steps_per_epoch

    def nll(step, carry):
        state = initial.replace(step=jnp.int32(step), carry=carry)
        return float(TRAIN_STEP(run.program, state, batch)[1])

    carried = jax.tree.map(jnp.ones_like, initial.carry)
    assert nll(per_epoch, carried) == nll(0, carried) == nll(0, initial.carry) == nll(1, initial.carry)
    assert nll(1, carried) != nll(0, carried)


def test_the_state_before_the_first_update_is_a_pure_function_of_the_seed():
    first, again, second = (prepare_run(small_settings({'seed': s}), DATA).init_state() for s in (1, 1, 2))
    assert same_bits(first, again) and not same_bits(first, second)


@pytest.mark.parametrize('name', ['sgd', 'rowwise_adam'])
def test_rows_without_a_gradient_decay_in_each_update_and_biases_do_not(name):
    rule = {'optimizer.name': name, 'optimizer.decay': 0.5, 'optimizer.learning_rate': 0.1, 'optimizer.table_rate': 1.0}
    settings = {**SPARSE, **rule, 'optimizer.schedule': 'constant', 'output.kind': 'sampled', 'output.samples': 1}
    run = prepare_run(small_settings(settings), DATA)
    assert run.program.scatters_updates
    before = run.init_state().params
    chunk = run.chunk(run.init_state(), 0)
    after = execute_steps(*chunk)[0].params
    rare = 0  # no word of this text is the rare-word symbol
    for name in ('C_VxM', 'U_VxK', 'W_VxP'):
        np.testing.assert_allclose(after[name][rare], before[name][rare] * 0.95**chunk.num_steps, rtol=1e-6)
    assert after['b_V'][rare] == before['b_V'][rare]


def test_with_a_decay_that_would_underflow_all_rows_are_updated():
    settings = small_settings({**SPARSE, 'output.kind': 'nce', 'optimizer.decay': 1.0, 'optimizer.learning_rate': 0.99})
    assert not prepare_run(settings, DATA).program.scatters_updates
    assert prepare_run(replace(settings, {'optimizer.decay': 0.1}), DATA).program.scatters_updates


RECIPES = {'dense': {}, 'sparse': {**SPARSE, 'output.kind': 'nce'}}


@pytest.mark.parametrize('recipe', RECIPES)
def test_the_average_is_a_plain_mean_at_first_and_then_exponential(recipe):
    changes = {**RECIPES[recipe], 'train.average': 0.7, 'optimizer.decay': 0.1}
    run = prepare_run(small_settings(changes), DATA)
    one = run.chunk(run.init_state(), 0)._replace(num_steps=1)
    state, expected = run.init_state(), run.init_state().params
    for number in range(6):
        state, _ = execute_steps(*one._replace(state=state, first=number * run.program.batch_size))
        kept = min(0.7, (number + 1) / (number + 2))
        expected = mix(kept, expected, jax.tree.map(np.asarray, state.params))
    together = run.chunk(run.init_state(), 0)._replace(num_steps=6)
    for end in (state, execute_steps(*together)[0]):
        for a, b in zip(jax.tree.leaves(end.average), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('recipe', others_nightly(RECIPES, ('sparse',)))
def test_a_tail_average_is_the_mean_of_the_parameters_from_its_start_on(recipe):
    changes = {**RECIPES[recipe], 'optimizer.decay': 0.1, 'train.epochs': 1}
    run = prepare_run(small_settings({**changes, 'train.average': 1.0, 'train.average_start': 0.5}), DATA)
    start = run.schedule.average_start
    assert start == 31 // 2
    state, step, each = run.init_state(), 0, []
    while step < run.schedule.total_steps:
        if step == start:
            each.append(jax.tree.map(np.array, state.params))
        chunk = run.chunk(state, step)
        for number in range(step, step + chunk.num_steps) if step >= start else ():
            one = chunk._replace(
                state=jax.tree.map(jnp.copy, state), first=number * run.program.batch_size, num_steps=1
            )
            state = execute_steps(*one)[0]
            each.append(jax.tree.map(np.array, state.params))
        if step < start:
            state, _ = execute_steps(*chunk)
            early = step_lib.evaluation_params(run.program, state)
            assert all((a == b).all() for a, b in zip(*map(jax.tree.leaves, (early, state.params))))
        step += chunk.num_steps
    whole, step = run.init_state(), 0
    while step < run.schedule.total_steps:
        chunk = run.chunk(whole, step)
        whole, step = execute_steps(*chunk)[0], step + chunk.num_steps
    expected = jax.tree.map(lambda *x: np.mean(x, axis=0), *each)
    for found in (state.average, step_lib.evaluation_params(run.program, whole)):
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
