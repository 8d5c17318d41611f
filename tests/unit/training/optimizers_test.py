import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from bag_of_features import BagOfFeatures
from helpers import SPARSE, default_settings, make_network, small_settings

from nplm_jax.models.network import Network
from nplm_jax.outputs.output_layer import Tables
from nplm_jax.runs.program_from_settings import updates_rows
from nplm_jax.training.optimizers import make_optimizer
from nplm_jax.training.rate_schedules import paper_schedule
from nplm_jax.training.transformations import (
    HIDDEN,
    TABLES,
    VECTORS,
    clip_by_global_norm,
    label_parameters,
    scale_by_row_moment,
)

TABLE_NAMES = ('C_VxM', 'b_V')


def make(changes, total_steps=100, batch_size=1):
    """Returns the learning rate as a function of the update, and the Optax optimizer."""
    rule = default_settings({'optimizer.schedule': 'constant', 'optimizer.decay': 0.0, **changes}).optimizer
    optimizer = make_optimizer(rule, total_steps, batch_size, TABLE_NAMES)
    of_optax = optax.GradientTransformationExtraArgs(
        lambda params: optimizer.init(params, rule.hyperparams), optimizer.update
    )
    return lambda step: float(optimizer.learning_rate(rule.hyperparams, step)), of_optax


def test_the_papers_schedule_counts_words():
    assert paper_schedule(1e-3, 1e-8, 1, 0) == pytest.approx(1e-3)
    assert paper_schedule(1e-3, 1e-8, 1, 10**8) == pytest.approx(5e-4)
    assert paper_schedule(1e-3, 1e-8, 50, 2 * 10**6) == pytest.approx(50 * 5e-4)


@pytest.mark.parametrize('name,end', [('constant', 2.0), ('linear', 0.0), ('cosine', 0.0)])
def test_schedules_end_at_zero_and_warm_up(name, end):
    changes = {'optimizer.learning_rate': 2.0, 'optimizer.schedule': name}
    rate, _ = make(changes)
    assert rate(0) == 2 and rate(100) == pytest.approx(end, abs=1e-6)
    rate, _ = make({**changes, 'optimizer.warmup': 10})
    assert [rate(step) for step in (0, 5, 10, 100)] == pytest.approx([0, 1, 2, end], abs=1e-6)
    halfway = rate(55)  # between the end of the warm-up and the end of the run
    assert halfway == pytest.approx((2.0 + end) / 2, abs=1e-6)


def rowwise_adam_by_numpy(gradients, p=1.0, b2=0.999, eps=1e-8):
    """Returns the update that the rule gives for the last of several gradients of a V x D table, in float64."""
    nu_V = np.zeros(len(gradients[0]))
    for g_VxD in gradients:
        nu_V = b2 * nu_V + (1 - b2) * np.mean(np.square(g_VxD), axis=1)
    corrected_V = nu_V / (1 - b2 ** len(gradients))
    return gradients[-1] / (np.sqrt(corrected_V**p * corrected_V[nu_V > 0].mean() ** (1 - p)) + eps)[:, None]


@pytest.mark.parametrize('p', [0.0, 0.5, 1.0])
def test_rowwise_adam_has_one_second_moment_a_row_of_a_table_and_is_adam_elsewhere(p):
    rng = np.random.default_rng(0)
    gradients = [
        {'C_VxM': rng.normal(size=(5, 3)), 'b_V': rng.normal(size=5), 'H': rng.normal(size=(2, 2))} for _ in range(4)
    ]
    for g in gradients:
        g['C_VxM'][rng.integers(5)] = 0
    params = jax.tree.map(jnp.zeros_like, gradients[0])
    rates = {'optimizer.learning_rate': 1.0, 'optimizer.table_rate': 1.0}
    _, chain = make({'optimizer.name': 'rowwise_adam', 'optimizer.row_adaptivity': p, **rates})
    adam, state = optax.scale_by_adam(), chain.init(params)
    adam_state = adam.init(params['H'])
    for g in gradients:
        updates, state = chain.update(g, state, params, step=0)
        expected, adam_state = adam.update(g['H'], adam_state)
    updates = jax.tree.map(jnp.negative, updates)
    np.testing.assert_allclose(updates['C_VxM'], rowwise_adam_by_numpy([g['C_VxM'] for g in gradients], p), rtol=1e-5)
    b_Vx1 = rowwise_adam_by_numpy([g['b_V'][:, None] for g in gradients], p)
    np.testing.assert_allclose(updates['b_V'], b_Vx1[:, 0], rtol=1e-5)
    np.testing.assert_array_equal(updates['H'], expected)


def test_rows_without_a_gradient_stay_as_they_are_under_rules_without_momentum_of_theirs():
    names = 'sgd', 'paper', 'rowwise_adam', 'adam', 'adagrad'
    changes = [{'optimizer.name': name, 'optimizer.decay': 0.0} for name in names]
    assert [updates_rows(default_settings(c)) for c in changes] == [True, True, True, False, False]
    assert not updates_rows(default_settings({**changes[0], 'optimizer.clip_norm': 1.0}))


def test_rowwise_adam_of_some_rows_is_that_of_all_rows_with_zeros_elsewhere():
    rule = scale_by_row_moment()
    dense = sparse = rule.init({'C_VxM': jnp.zeros((5, 2))})
    for rows in ([0, 3, 5], [3, 4, 5], [1, 3, 4]):  # there is no row 5
        values = jnp.asarray(np.random.default_rng(rows).normal(size=(3, 2)), jnp.float32)
        grads = jnp.zeros((5, 2)).at[jnp.asarray(rows)].add(values, mode='drop')
        expected, dense = rule.update({'C_VxM': grads}, dense)
        updates, sparse = rule.update({'C_VxM': values}, sparse, rows={'C_VxM': jnp.asarray(rows)})
        for row, update in zip(rows, updates['C_VxM']):
            if row < 5:
                np.testing.assert_allclose(update, expected['C_VxM'][row], rtol=1e-6)
        np.testing.assert_allclose(sparse.nu['C_VxM'], dense.nu['C_VxM'], rtol=1e-6)


@pytest.mark.parametrize('max_norm', [1e-3, 1.0, 1e6])
@pytest.mark.parametrize('scale', [0.0, 1e-3, 1.0, 1e18])
def test_gradients_are_clipped_to_the_norm_of_all_together(max_norm, scale):
    grads = {'a': jnp.array([3.0, 0.0]) * scale, 'b': jnp.array([[-4.0]]) * scale}
    updates, _ = jax.jit(clip_by_global_norm(max_norm).update)(grads, optax.EmptyState())
    expected = (min(1.0, max_norm / 5 / scale) if scale else 0.0) * scale * np.array([3, 0, -4])
    np.testing.assert_allclose(np.append(updates['a'], updates['b']), expected, rtol=1e-5)


def test_a_gradient_whose_squares_overflow_is_not_clipped_to_zero():
    updates, _ = clip_by_global_norm(1.0).update([jnp.array([1e20, 1.0])], optax.EmptyState())
    assert not np.isfinite(updates[0]).any()


@pytest.mark.parametrize('bad', [np.inf, -np.inf, np.nan])
def test_clipping_does_not_hide_a_gradient_that_is_not_finite(bad):
    updates, _ = clip_by_global_norm(1.0).update([jnp.array([1.0, bad])], optax.EmptyState())
    assert not np.isfinite(updates[0]).all()


@pytest.mark.parametrize(
    'name,of_optax',
    [
        ('sgd', optax.sgd),
        ('adam', optax.adam),
        ('adagrad', optax.adagrad),
    ],
)
def test_with_traced_hyperparameters_the_updates_are_those_of_optax(name, of_optax):
    changes = {'optimizer.name': name, 'optimizer.learning_rate': 0.3, 'optimizer.schedule': 'cosine'}
    _, optimizer = make(changes)
    update = jax.jit(lambda grads, state, params, step: optimizer.update(grads, state, params, step=step))
    expected = of_optax(optax.cosine_decay_schedule(0.3, 100))
    params = {'d': jnp.arange(3.0)}
    state, expected_state = optimizer.init(params), expected.init(params)
    for step in range(3):
        grads = {'d': jnp.sin(params['d'] + step)}
        updates, state = update(grads, state, params, step)
        expected_updates, expected_state = expected.update(grads, expected_state)
        np.testing.assert_allclose(updates['d'], expected_updates['d'], rtol=1e-6)


@pytest.mark.parametrize('name,factor', [('adam', 0.2), ('paper', 0.3)])
def test_the_weight_decay_is_the_papers_under_the_papers_optimizer(name, factor):
    rate = 'optimizer.epsilon_0' if name == 'paper' else 'optimizer.learning_rate'
    rule = default_settings({'optimizer.name': name, rate: 1.0, 'optimizer.decay': factor}).optimizer
    optimizer = make_optimizer(rule, 100, 1, TABLE_NAMES)
    state = optimizer.init({'d': jnp.zeros(3)}, rule.hyperparams)
    assert float(optimizer.table_factor(state, 0)) == pytest.approx(1 - factor)


@pytest.mark.parametrize('name, batch_size, decay', [('paper', 1, 1e-4), ('paper', 1, 1e-5), ('sgd', 128, 1e-7)])
def test_decay_below_the_resolution_of_float32_has_its_effect(name, batch_size, decay):
    rate = 'optimizer.epsilon_0' if name == 'paper' else 'optimizer.learning_rate'
    constant = {'optimizer.r': 0.0} if name == 'paper' else {'optimizer.schedule': 'constant'}
    changes = {'optimizer.name': name, rate: 1e-3, 'optimizer.decay': decay, **constant}
    rule = default_settings(changes).optimizer
    num_updates = round(0.01 / (1e-3 * decay))  # weights without a gradient decay by 1%
    optimizer = make_optimizer(rule, num_updates, batch_size, TABLE_NAMES)
    params = {'C_VxM': jnp.linspace(0.01, 1.0, 50)[:, None]}
    zeros, num_steps = {'C_VxM': jnp.zeros((50, 1))}, 100
    interval = round(num_updates / num_steps)

    def update(carry, number):
        params, state, factor = carry
        step = number * interval + interval - 1
        factor *= optimizer.table_factor(state, step)
        updates, state = optimizer.update(zeros, state, params, step=step)
        return (optax.apply_updates(params, updates), state, factor), optimizer.table_factor(state, step + 1)

    start = params, optimizer.init(params, rule.hyperparams), jnp.ones(())
    (after, _, factor), others = jax.lax.scan(update, start, jnp.arange(num_steps))
    np.testing.assert_allclose(after['C_VxM'] / params['C_VxM'], np.exp(-0.01), rtol=2e-4)
    assert float(factor) == pytest.approx(np.exp(-0.01), rel=2e-4) and (np.asarray(others) == 1).all()


def test_a_low_rate_of_tables_does_not_bundle_the_decay_of_other_matrices():
    rates = {'optimizer.learning_rate': 2.0, 'optimizer.table_rate': 1e-4, 'optimizer.decay': 1e-5}
    _, optimizer = make({'optimizer.name': 'sgd', **rates})
    params, zeros = {'H': jnp.ones((2, 2))}, {'H': jnp.zeros((2, 2))}
    state = optimizer.init(params)
    for step in (0, 49_999):
        updates, state = optimizer.update(zeros, state, params, step=step)
        np.testing.assert_allclose(updates['H'], np.full((2, 2), -2e-5), rtol=1e-5)


def test_parameters_are_tables_hidden_matrices_or_vectors():
    params = {'C_VxM': jnp.zeros((3, 2)), 'b_V': jnp.zeros(3), 'H': jnp.zeros((2, 2)), 'cell': {'bias': jnp.zeros(2)}}
    labels = label_parameters(params, TABLE_NAMES)
    assert labels == {'C_VxM': TABLES, 'b_V': TABLES, 'H': HIDDEN, 'cell': {'bias': VECTORS}}


@pytest.mark.parametrize('name', ['sgd', 'adam', 'adagrad'])
def test_every_optimizer_lowers_a_loss_and_clips(name):
    _, optimizer = make({'optimizer.name': name, 'optimizer.learning_rate': 0.1, 'optimizer.clip_norm': 1e-3})
    loss = lambda params: jnp.sum(jnp.square(params['d'] - 3.0))  # noqa: E731
    params = {'d': jnp.zeros(4)}
    state, losses = optimizer.init(params), []
    for _ in range(20):
        updates, state = optimizer.update(jax.grad(loss)(params), state, params, step=0)
        params = optax.apply_updates(params, updates)
        losses.append(float(loss(params)))
    assert losses == sorted(losses, reverse=True)
    if name == 'sgd':
        assert float(jnp.linalg.norm(params['d'])) == pytest.approx(20 * 0.1 * 1e-3, rel=1e-4)


def test_class_matrices_of_two_level_and_what_a_body_declares_are_tables():
    class WithPositions(BagOfFeatures):
        tables = Tables(others=('positions_LxM',))

        def init(self, key, vocabulary_size):
            own = {'positions_LxM': jnp.zeros((self.reach, self.m)), 'W_V': jnp.zeros((self.m, self.m))}
            return super().init(key, vocabulary_size) | own

    changes = {**SPARSE, 'output.kind': 'two_level', 'optimizer.name': 'rowwise_adam', 'optimizer.decay': 0.1}
    network = Network(WithPositions(3, 4), make_network(23, changes).output, 23)
    params = network.init(jax.random.key(0))
    labels = label_parameters(params, network.tables.all)
    assert labels == {**dict.fromkeys(params, TABLES), 'W_V': HIDDEN}

    rule = small_settings(changes).optimizer
    optimizer = make_optimizer(rule, 100, 1, network.tables.all)
    initial = optimizer.init(params, rule.hyperparams)
    grads = jax.tree.map(jnp.ones_like, params)
    rows = {name: jnp.arange(2) for name in network.tables.of_words}
    sparse = {**grads, **{name: grads[name][:2] for name in rows}}
    dense_updates, state = optimizer.update(grads, initial, params, step=0)
    updates, _ = optimizer.update(sparse, initial, params, rows=rows, step=0)
    kept = {jax.tree_util.keystr(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(state)}
    assert [shape for name, shape in kept.items() if 'U_GxM' in name] == [(network.output.num_classes,)]
    jax.tree.map(np.testing.assert_array_equal, updates['classes'], dense_updates['classes'])
