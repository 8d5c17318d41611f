"""Tests that runs with non-finite numbers stop and report the update."""

import contextlib
import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DATA, SPARSE, RecordingReporter, numbers, others_nightly, small_settings

from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training.checkpoints import CheckpointStore
from nplm_jax.training.milestones import Progress
from nplm_jax.training.train import fit, train
from nplm_jax.utils.errors import NonFiniteError

CLIMB = {  # the rate rises until the decay becomes growth
    'optimizer.learning_rate': 100.0,
    'optimizer.schedule': 'linear',
    'optimizer.warmup': 80,
    'optimizer.decay': 1.0,
    'train.checkpoint_every': 8,
    'train.steps_per_execution': 4,
}
LSTM = {'model.family': 'lstm', 'model.direct': False, 'train.batch_size': 8, 'model.bptt_length': 4}
MOMENTUM = {'optimizer.name': 'optax:sgd', 'optimizer.options.momentum': 0.9, 'optimizer.tables': 'same'}
KINDS = {
    'window': CLIMB,
    'lstm': {**CLIMB, **LSTM},
    'nce': {**SPARSE, **CLIMB, 'output.kind': 'nce'},
    'two_level': {**SPARSE, **CLIMB, 'output.kind': 'two_level'},
    'two_level with momentum': {**SPARSE, **CLIMB, **MOMENTUM, 'output.kind': 'two_level'},
}


@pytest.fixture
def store(tmp_path):
    with contextlib.closing(CheckpointStore(tmp_path / 'checkpoints')) as store:
        yield store


def train_until_it_stops(settings, store):
    """Returns the error of a run and all losses that it reported."""
    reporter = RecordingReporter()
    with pytest.raises(NonFiniteError) as raised:
        fit(train(prepare_run(settings, DATA), store, reporter))
    return raised.value, reporter.nll


def save_at_4(store, settings, **changes):
    """Saves the initial state with some parameters changed by a function, as if four updates had been made."""
    state = prepare_run(settings, DATA).init_state()
    params = {name: changes.get(name, lambda x: x)(array) for name, array in state.params.items()}
    state = state.replace(params=params, step=jnp.int32(4))
    store.save(4, state, state.params, dataclasses.asdict(Progress(step=4)))


@pytest.mark.parametrize('kind', others_nightly(KINDS, ('window', 'nce')))
def test_a_run_that_diverges_stops_before_it_saves_what_is_not_finite(kind, store):
    error, losses = train_until_it_stops(small_settings(KINDS[kind]), store)
    saved = store.latest_step()
    assert saved and saved % 8 == 0 and np.isfinite(losses).all()
    assert saved < int(numbers(str(error))[0])


# --- a finite loss whose gradient, parameters or optimizer state are not ---------------------------------


@pytest.mark.parametrize(
    'name,clip_norm', [('sgd', 0.0), ('sgd', 1.0), ('adam', 0.0), ('rowwise_adam', 0.0), ('adagrad', 0.0)]
)
def test_a_gradient_that_is_not_finite_below_a_finite_loss_is_found(name, clip_norm, store):
    optimizer = {'optimizer.name': name, 'optimizer.clip_norm': clip_norm}
    shape = {'model.h': 0, 'model.dropout': 0.0, 'train.steps_per_execution': 1, 'optimizer.decay': 0.0}
    settings = small_settings({**optimizer, **shape})
    # y = b + Wx with x = 0; the gradient with respect to x adds up W's numbers.
    save_at_4(store, settings, W_VxP=lambda W: jnp.full_like(W, 3e38), C_VxM=lambda C: 0 * C)
    error, losses = train_until_it_stops(settings, store)
    assert math.isfinite(losses[0]) and 'C_VxM ' in str(error) and numbers(str(error)) == ['5']
    assert store.latest_step() == 4


def test_what_an_optimizer_keeps_may_overflow_alone(store):
    optimizer = {'optimizer.name': 'adam', 'optimizer.schedule': 'constant', 'optimizer.learning_rate': 1e-3}
    shape = {'model.h': 0, 'model.dropout': 0.0, 'optimizer.decay': 0.0}
    settings = small_settings({**optimizer, **shape})
    save_at_4(store, settings, W_VxP=lambda W: 1e25 * W, C_VxM=lambda C: 0 * C)
    error, _ = train_until_it_stops(settings, store)
    assert str(error).startswith('opt_state') and 'nu.C_VxM ' in str(error) and numbers(str(error))[-1] == '8'


def test_a_damaged_row_that_no_loss_has_needed_is_found(store):
    keep_rate = {'optimizer.learning_rate': 0.5, 'optimizer.schedule': 'cosine', 'optimizer.warmup': 0}
    settings = small_settings({**KINDS['nce'], **keep_rate, 'optimizer.decay': 1e-4, 'output.samples': 1})
    save_at_4(store, settings, U_VxK=lambda U: U.at[0].set(jnp.nan))  # no word of this text is the rare-word symbol
    error, losses = train_until_it_stops(settings, store)
    assert len(losses) >= 4 and np.isfinite(losses).all() and store.latest_step() == 4
    assert str(error).startswith('params.U_VxK ') and numbers(str(error)) == ['8']
