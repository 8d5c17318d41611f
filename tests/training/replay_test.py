"""Runs whose numbers stop being finite: that they stop, and say at which update, on which words and how."""

import contextlib
import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DATA, SPARSE, RecordingReporter, small_settings

from nplm_jax.data import dataset
from nplm_jax.training import replay
from nplm_jax.training import step as step_lib
from nplm_jax.training.checkpoints import CheckpointStore
from nplm_jax.training.loop import Trainer, fit, prepare_run
from nplm_jax.training.schedule import Progress
from nplm_jax.utils import finite
from nplm_jax.utils.errors import NonFiniteError

CLIMB = {  # the rate climbs until the decay turns to growth
    'optimizer.learning_rate': 100.0,
    'optimizer.schedule': 'linear',
    'optimizer.warmup': 80,
    'optimizer.momentum': 0.0,
    'optimizer.decay': 1.0,
    'train.checkpoint_every': 8,
    'train.steps_per_execution': 4,
}
LSTM = {'model.family': 'lstm', 'model.direct': False, 'train.batch_size': 8, 'train.bptt_length': 4}
KINDS = {
    'window': {**CLIMB, 'optimizer.momentum': 0.9},
    'lstm': {**CLIMB, **LSTM},
    'nce': {**SPARSE, **CLIMB, 'output.kind': 'nce'},
    'two_level': {**SPARSE, **CLIMB, 'output.kind': 'two_level'},
    'two_level with momentum': {**SPARSE, **CLIMB, 'output.kind': 'two_level', 'optimizer.momentum': 0.9},
}


@pytest.fixture
def store(tmp_path):
    with contextlib.closing(CheckpointStore(tmp_path / 'checkpoints')) as store:
        yield store


def train_until_it_stops(settings, store):
    """Returns how a run ends, and all losses that it reported."""
    reporter = RecordingReporter()
    with pytest.raises(NonFiniteError) as raised:
        fit(Trainer(prepare_run(settings, DATA), store, reporter))
    return raised.value, reporter.nll


def save_at_4(store, settings, **changes):
    """Saves the initial state with some parameters changed by a function, as if four updates had been made."""
    state = prepare_run(settings, DATA).init_state()
    params = {name: changes.get(name, lambda x: x)(array) for name, array in state.params.items()}
    state = state.replace(params=params, step=jnp.int32(4))
    store.save(4, state, state.params, dataclasses.asdict(Progress(step=4)))


SLOW_KINDS = [pytest.param(kind, marks=pytest.mark.slow) for kind in ('lstm', 'two_level', 'two_level with momentum')]


@pytest.mark.parametrize('kind', ['window', 'nce', *SLOW_KINDS])
def test_the_first_update_that_is_not_finite_is_found(kind, store, tmp_path):
    settings = small_settings(KINDS[kind])
    error, losses = train_until_it_stops(settings, store)
    saved = store.latest_step()
    assert saved and saved % 8 == 0 and np.isfinite(losses).all()
    update = replay.replay_update(prepare_run(settings, DATA), store, error.detected_at)
    assert saved < update.number <= error.detected_at
    assert update.non_finite and all(math.isfinite(norm) for norm in update.norms.values())
    B = settings.train.batch_size
    assert update.first == (update.number - 1 - update.epoch * (220 // B)) * B
    positions_B = prepare_run(settings, DATA).words.corpus_positions(update.epoch, update.first, B)
    assert update.positions == tuple(positions_B.tolist())
    sound = replay.replay_update(prepare_run(settings, DATA), store, saved)
    assert sound.number == saved and sound.non_finite is None and set(sound.gradient_norms) == set(sound.norms)
    assert sound.loss == pytest.approx(losses[saved - 1], rel=1e-5)

    text = str(replay.explain(error, prepare_run(settings, DATA), store, tmp_path))
    assert text.startswith(
        f'update {update.number}: {update.non_finite} is not finite; the checkpoint of update {saved}'
    )
    assert f' replay --workdir={tmp_path} --step={update.number}' in text
    written = json.loads((tmp_path / replay.FILE).read_text())
    assert written['positions'] == list(update.positions) and written['norms'] == update.norms


def test_norms_are_those_of_the_gradient(store):
    settings = small_settings({'model.dropout': 0.0})
    run = prepare_run(settings, DATA)
    update = replay.replay_update(run, store, 1)
    params = run.init_state().params
    batch = dataset.windows(DATA.tokens_T, jnp.asarray(update.positions), 3)
    grads = jax.jit(jax.grad(lambda p: run.program.network.loss(p, *batch)[0]))(params)
    assert set(update.gradient_norms) == set(grads)
    for name, norm in update.gradient_norms.items():
        assert norm == pytest.approx(float(jnp.linalg.norm(grads[name])), rel=1e-5)
        assert update.norms[name] == pytest.approx(float(jnp.linalg.norm(params[name])), rel=1e-5)


def test_norms_of_a_late_update_are_those_before_it(store):
    run = prepare_run(small_settings({'train.epochs': 40}), DATA)
    state = run.init_state().replace(step=jnp.int32(300))
    store.save(300, state, state.params, dataclasses.asdict(Progress(step=300)))
    update = replay.replay_update(run, store, 301)
    assert update.number == 301 and update.norms == finite.norms(state.params)


def test_norms_of_rows_that_are_needed_twice_are_those_of_their_sum(store):
    settings = small_settings({**SPARSE, 'optimizer.decay': 0.0, 'output.kind': 'nce'})
    run = prepare_run(settings, DATA)
    update = replay.replay_update(run, store, 1)
    before = run.init_state()
    batch = dataset.windows(DATA.tokens_T, jnp.asarray(update.positions), 3)
    after, _ = jax.jit(step_lib.train_step, static_argnums=0)(run.program, before, *batch, run.inputs)
    rate = run.program.optimizer.learning_rate(run.inputs.hyperparameters, 0)
    for name, norm in update.gradient_norms.items():
        change = jnp.linalg.norm(after.params[name] - before.params[name])
        assert float(change / rate) == pytest.approx(norm, rel=1e-3), name


# --- a finite loss whose gradient, parameters or optimizer state are not ---------------------------------


@pytest.mark.parametrize(
    'name,clip_norm', [('sgd', 0.0), ('sgd', 1.0), ('adam', 0.0), ('rowwise_adam', 0.0), ('adagrad', 0.0)]
)
def test_a_gradient_that_is_not_finite_below_a_finite_loss_is_found(name, clip_norm, store):
    optimizer = {'optimizer.name': name, 'optimizer.clip_norm': clip_norm, 'optimizer.momentum': 0.0}
    shape = {'model.h': 0, 'model.dropout': 0.0, 'train.steps_per_execution': 1, 'optimizer.decay': 0.0}
    settings = small_settings({**optimizer, **shape})
    # y = b + Wx with x = 0; the gradient with respect to x adds up W's numbers.
    save_at_4(store, settings, W_VxP=lambda W: jnp.full_like(W, 3e38), C_VxM=lambda C: 0 * C)
    error, losses = train_until_it_stops(settings, store)
    update = replay.replay_update(prepare_run(settings, DATA), store, error.detected_at)
    assert update.number == 5 and math.isfinite(update.loss) and update.loss == pytest.approx(losses[0], rel=1e-6)
    assert update.non_finite == 'the gradient of C_VxM' and update.norms['W_VxP'] > 3e38
    assert store.latest_step() == 4


def test_what_an_optimizer_keeps_may_overflow_alone(store):
    optimizer = {'optimizer.name': 'adam', 'optimizer.schedule': 'constant', 'optimizer.learning_rate': 1e-3}
    shape = {'model.h': 0, 'model.dropout': 0.0, 'optimizer.momentum': 0.0, 'optimizer.decay': 0.0}
    settings = small_settings({**optimizer, **shape})
    save_at_4(store, settings, W_VxP=lambda W: 1e25 * W, C_VxM=lambda C: 0 * C)
    error, _ = train_until_it_stops(settings, store)
    update = replay.replay_update(prepare_run(settings, DATA), store, error.detected_at)
    assert update.number == 5 and update.non_finite.startswith('opt_state')
    assert 'nu.C_VxM after the update' in update.non_finite
    assert all(math.isfinite(norm) for norm in (update.loss, *update.gradient_norms.values()))


def test_a_damaged_row_that_no_loss_has_needed_is_found(store):
    keep_rate = {'optimizer.learning_rate': 0.5, 'optimizer.schedule': 'cosine', 'optimizer.warmup': 0}
    settings = small_settings({**KINDS['nce'], **keep_rate, 'optimizer.decay': 1e-4, 'output.samples': 1})
    save_at_4(store, settings, U_VxK=lambda U: U.at[0].set(jnp.nan))  # no word of this text is the rare-word symbol
    error, losses = train_until_it_stops(settings, store)
    assert len(losses) >= 4 and np.isfinite(losses).all() and store.latest_step() == 4
    assert str(error).startswith('params.U_VxK after update 8 is not finite')
    assert (
        replay.replay_update(prepare_run(settings, DATA), store, error.detected_at).non_finite
        == 'U_VxK before the update'
    )


def test_what_does_not_happen_again_says_so(store, tmp_path):
    error = NonFiniteError('the loss of update 9 is nan', 9)
    text = str(replay.explain(error, prepare_run(small_settings(KINDS['window']), DATA), store, tmp_path))
    assert text.startswith('the loss of update 9 is nan (but not when these updates were replayed); no che')
    assert not (tmp_path / replay.FILE).exists()


def test_names_and_norms_of_any_tree():
    tree = {'a': (jnp.ones(3), jnp.asarray([3e38, 3e38])), 'n': jnp.arange(3), 'empty': jnp.zeros((0, 2))}
    assert finite.first_non_finite(tree) is None and finite.first_non_finite({}) is None
    assert finite.norms(tree)['a.1'] == pytest.approx(math.sqrt(2) * 3e38, rel=1e-6)
    for bad in (jnp.nan, jnp.inf, -jnp.inf):
        assert finite.first_non_finite({**tree, 'b': jnp.asarray([1.0, bad]), 'c': jnp.asarray(bad)}) == 'b'
