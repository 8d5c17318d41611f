"""Runs whose numbers stop being finite: that they stop, and say at which update, on which words and how."""

import contextlib
import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import loop_test as one
import numpy as np
import pytest
from loop_test import DATA

from nplm_jax.outputs import sampled
from nplm_jax.training import checkpoints, loop, objective, optimizers, replay, schedule
from nplm_jax.utils import finite
from nplm_jax.utils.errors import NonFiniteError

CLIMB = dict(learning_rate=100.0, schedule='linear', warmup=80, momentum=0.0, decay=1.0)  # the decay turns to growth
OFTEN = dict(checkpoint_every=8, steps_per_execution=4)
KINDS = {
    'window': one.changed(optimizer={**CLIMB, 'momentum': 0.9}, train=OFTEN),
    'lstm': one.changed(
        optimizer=CLIMB, train={**OFTEN, 'batch_size': 8, 'bptt_length': 4}, model=dict(family='lstm', direct=False)
    ),
    'nce': one.changed(optimizer=CLIMB, train=OFTEN, output=dict(kind='nce', **one.CHEAP)),
    'two_level': one.changed(optimizer=CLIMB, train=OFTEN, output=dict(kind='two_level', **one.CHEAP)),
}


@pytest.fixture
def store(tmp_path):
    with contextlib.closing(checkpoints.CheckpointStore(tmp_path / 'checkpoints')) as store:
        yield store


def stop(settings, store):
    """How a run ends, and all losses that it reported."""
    reporter = one.Silent()
    with pytest.raises(NonFiniteError) as raised:
        loop.fit(settings, DATA, store, reporter)
    return raised.value, reporter.nll


def begun(settings):
    state = loop.init_state(settings, len(DATA.vocabulary), None, 93)
    return state.replace(step=jnp.int32(4))


def save(store, state):
    store.save(4, state, state.params, dataclasses.asdict(schedule.Progress(step=4)))


SLOW_KINDS = [pytest.param(kind, marks=pytest.mark.slow) for kind in ('lstm', 'two_level')]


@pytest.mark.parametrize('kind', ['window', 'nce', *SLOW_KINDS])
def test_the_first_update_that_is_not_finite_is_found(kind, store, tmp_path):
    settings = KINDS[kind]
    error, losses = stop(settings, store)
    saved = store.latest_step()
    assert saved and saved % 8 == 0 and np.isfinite(losses).all()
    found = replay.find(settings, DATA, store, error.seen_at)
    assert saved < found.number <= error.seen_at
    assert found.not_finite and all(math.isfinite(n) for n in found.norms.values())
    B = settings.train.batch_size
    assert found.first == (found.number - 1 - found.epoch * (220 // B)) * B
    order_T = schedule.order(settings, found.epoch, DATA.train)
    assert found.positions == tuple(order_T[found.first : found.first + B].tolist())
    sound = replay.look(settings, DATA, store, saved)
    assert sound.number == saved and sound.not_finite is None and set(sound.gradient_norms) == set(sound.norms)
    assert sound.loss == pytest.approx(losses[saved - 1], rel=1e-5)

    text = str(replay.explain(error, settings, DATA, store, tmp_path))
    assert text.startswith(f'update {found.number}: {found.not_finite} is not finite; the checkpoint of update {saved}')
    assert f'python -m nplm_jax.cli replay --workdir={tmp_path} --step={found.number}' in text
    written = json.loads((tmp_path / replay.FILE).read_text())
    assert written['positions'] == list(found.positions) and written['norms'] == found.norms


def test_norms_are_those_of_the_gradient(store):
    settings = dataclasses.replace(one.BASE, model=dataclasses.replace(one.BASE.model, dropout=0.0))
    found = replay.look(settings, DATA, store, 1)
    state, _, _ = loop.begin(settings, schedule.make_schedule(settings, DATA.train), DATA, store)
    batch = loop.batch(settings, DATA.tokens_T, jnp.asarray(found.positions))
    gradients = jax.grad(lambda p: objective.penalised_nll(p, *batch, 1e-4)[0])(state.params)
    for name, norm in found.gradient_norms.items():
        assert norm == pytest.approx(float(jnp.linalg.norm(getattr(gradients, name))), rel=1e-5)
        assert found.norms[name] == pytest.approx(float(jnp.linalg.norm(getattr(state.params, name))), rel=1e-5)


def test_norms_of_rows_that_are_needed_twice_are_those_of_their_sum(store):
    settings = one.changed(optimizer=dict(momentum=0.0, decay=0.0), output=dict(kind='nce', **one.CHEAP))
    found = replay.look(settings, DATA, store, 1)
    state, _, _ = loop.begin(settings, (made := schedule.make_schedule(settings, DATA.train)), DATA, store)
    noise = sampled.for_data(DATA, settings.output)
    batch = loop.batch(settings, DATA.tokens_T, jnp.asarray(found.positions))
    after, _ = loop.train_step(state, *batch, settings, made.total_steps, noise)
    rate = optimizers.schedule(settings.optimizer, made.total_steps, settings.train.batch_size)(0)
    for name, norm in found.gradient_norms.items():
        moved = jnp.linalg.norm(getattr(after.params, name) - getattr(state.params, name))
        assert float(moved / rate) == pytest.approx(norm, rel=1e-3), name


# --- a finite loss whose gradient, parameters or optimizer state are not ---------------------------------


@pytest.mark.parametrize('name,clip_norm', [('sgd', 0.0), ('sgd', 1.0), ('adam', 0.0), ('adagrad', 0.0)])
def test_a_gradient_that_is_not_finite_below_a_finite_loss(name, clip_norm, store):
    optimizer = dict(name=name, momentum=0.0, clip_norm=clip_norm, decay=0.0)
    settings = one.changed(optimizer=optimizer, model=dict(h=0, dropout=0.0), train=dict(steps_per_execution=1))
    state = begun(settings)
    # y = b + Wx with x = 0; the gradient with respect to x adds up W's numbers.
    params = state.params.replace(W_VxP=jnp.full_like(state.params.W_VxP, 3e38), C_VxM=0 * state.params.C_VxM)
    save(store, state.replace(params=params))
    error, losses = stop(settings, store)
    found = replay.find(settings, DATA, store, error.seen_at)
    assert found.number == 5 and math.isfinite(found.loss) and found.loss == pytest.approx(losses[0], rel=1e-6)
    assert found.not_finite == 'its gradient of C_VxM' and found.norms['W_VxP'] > 3e38
    assert store.latest_step() == 4


def test_what_an_optimizer_keeps_may_overflow_alone(store):
    settings = one.changed(
        optimizer=dict(name='adam', momentum=0.0, decay=0.0, schedule='constant', learning_rate=1e-3),
        model=dict(h=0, dropout=0.0),
    )
    state = begun(settings)
    params = state.params.replace(W_VxP=1e25 * state.params.W_VxP, C_VxM=0 * state.params.C_VxM)
    save(store, state.replace(params=params))
    error, _ = stop(settings, store)
    found = replay.find(settings, DATA, store, error.seen_at)
    assert found.number == 5 and found.not_finite.startswith('opt_state') and 'nu.C_VxM after it' in found.not_finite
    assert all(math.isfinite(n) for n in (found.loss, *found.gradient_norms.values()))


def test_a_damaged_row_that_no_loss_has_needed(store):
    settings = dataclasses.replace(KINDS['nce'], optimizer=dataclasses.replace(one.BASE.optimizer, momentum=0.0))
    settings = dataclasses.replace(settings, output=dataclasses.replace(settings.output, samples=1))
    state = begun(settings)  # no word of this text is the rare-word symbol
    save(store, state.replace(params=state.params.replace(U_VxK=state.params.U_VxK.at[0].set(jnp.nan))))
    error, losses = stop(settings, store)
    assert len(losses) >= 4 and np.isfinite(losses).all() and store.latest_step() == 4
    assert str(error).startswith('params.U_VxK after update 8 is not finite')
    assert replay.find(settings, DATA, store, error.seen_at).not_finite == 'U_VxK before it'


def test_what_does_not_happen_again_says_so(store, tmp_path):
    error = NonFiniteError('the loss of update 9 is nan', 9)
    text = str(replay.explain(error, KINDS['window'], DATA, store, tmp_path))
    assert text.startswith('the loss of update 9 is nan (not again when these updates were made a second time); no che')
    assert not (tmp_path / replay.FILE).exists()


def test_names_and_norms_of_any_tree():
    tree = {'a': (jnp.ones(3), jnp.asarray([3e38, 3e38])), 'n': jnp.arange(3), 'empty': jnp.zeros((0, 2))}
    assert finite.first_not_finite(tree) is None and finite.first_not_finite({}) is None
    assert finite.norms(tree)['a.1'] == pytest.approx(math.sqrt(2) * 3e38, rel=1e-6)
    for bad in (jnp.nan, jnp.inf, -jnp.inf):
        assert finite.first_not_finite({**tree, 'b': jnp.asarray([1.0, bad]), 'c': jnp.asarray(bad)}) == 'b'
