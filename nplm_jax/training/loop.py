"""TrainState, one update, many updates a dispatch, and `fit`: the loop around them.

Below `fit` everything is a pure function of its arguments. Dims: S steps, B batch, T words, N context words.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax

from nplm_jax.config import Settings
from nplm_jax.data import dataset
from nplm_jax.distributed import multihost, sharding
from nplm_jax.inference import perplexity as evaluation
from nplm_jax.models import language_model, nplm, recurrent
from nplm_jax.outputs import sampled
from nplm_jax.training import dispatching, objective, optimizers, sparse_rows
from nplm_jax.training.schedule import Progress, Schedule, make_schedule, order
from nplm_jax.utils import finite

if TYPE_CHECKING:
    from nplm_jax.runs.reporting import Reporter
    from nplm_jax.training.checkpoints import CheckpointStore


class Interrupted(Exception):
    """Training was asked to stop by a signal, and has saved its state."""

    def __init__(self, step: int, signal_number: int):
        super().__init__(f'stopped after update {step:,}, which is saved')
        self.signal_number = signal_number


@flax.struct.dataclass
class TrainState:
    """Everything an update changes. step: int32, how many there were. carry: a recurrent network's state, else None."""

    params: objective.Params
    opt_state: optax.OptState
    step: jax.Array
    carry: recurrent.State = None


def init_state(settings: Settings, vocabulary_size: int, bias: np.ndarray | None, total_steps: int) -> TrainState:
    """The state before the first update: a pure function of the seed."""
    key = jax.random.fold_in(jax.random.key(settings.seed), 0)
    model, carry = settings.model, None
    if model.is_recurrent:
        params = recurrent.init(key, model, vocabulary_size, bias)
        carry = recurrent.begin(model.family, model.h, settings.streams)
    else:
        params = nplm.init(key, model, vocabulary_size, bias, settings.output)
    optimizer = optimizers.build(settings.optimizer, total_steps, settings.train.batch_size)
    return TrainState(params, optimizer.init(params), jnp.zeros((), jnp.int32), carry)


class Gradients(NamedTuple):
    """What an update is made of.

    nll: the batch's mean NLL, nats a word. trees: shaped like the parameters, or like what `touched.gather` gave for
    `rows`. carry: what a recurrent network carries on.
    """

    nll: jax.Array
    trees: tuple[objective.Params, ...]
    rows: tuple[jax.Array, ...] | None = None
    carry: recurrent.State = None


def gradients(
    state: TrainState,
    contexts_BxN: jax.Array,
    targets_B: jax.Array,
    settings: Settings,
    total_steps: int,
    noise: sampled.Noise | None = None,
    layout: sharding.Layout = sharding.ONE_DEVICE,
) -> Gradients:
    """Those of one batch. Arguments as of `train_step`."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(settings.seed), 2), state.step)
    if settings.output.moves_few_rows:
        return _few_gradients(state.params, contexts_BxN, targets_B, settings, noise, key, layout)
    starts = state.step % (total_steps // settings.train.epochs) == 0  # an epoch, with no words read yet
    carry = jax.tree.map(lambda h: jnp.where(starts, 0, h), state.carry)
    (_, (nll, carry)), found = jax.value_and_grad(objective.penalised_nll, has_aux=True)(
        state.params,
        contexts_BxN,
        targets_B,
        settings.optimizer.weight_decay,
        settings.model.dropout,
        key,
        settings.output,
        layout,
        carry,
    )
    return Gradients(nll, (found,), carry=carry)


def _few_gradients(params, contexts_BxN, targets_B, settings, noise, key, layout):
    """The gradients of the rows that a loss other than the full one needs, without decay.

    Over a mesh these rows alone cross the devices, and all devices share the batch.
    """
    key, key_rows = jax.random.split(key)
    output = settings.output
    rows = contexts_BxN, *objective.output_rows(params, targets_B, output, noise, key_rows)
    # Else XLA would share out which rows they are as well, and add up whole arrays of |V| rows at the end.
    rows, targets_B = layout.replicate((rows, targets_B))
    gathered = layout.replicate(sparse_rows.gather(params, *rows))
    of_one_device = functools.partial(objective.cheap_loss, dropout=settings.model.dropout, kind=output.kind)

    def losses(shared, own):
        return layout.map_few(of_one_device)(shared, own, targets_B, (key, rows[-1], noise))[0]

    (_, nll), found = jax.value_and_grad(losses, (0, 1), has_aux=True)(*gathered)
    return Gradients(nll, found, rows)


def batch(settings: Settings, tokens_T: jax.Array, positions_B: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The contexts and targets that an update at these positions takes."""
    return dataset.windows(tokens_T, positions_B, 1 if settings.model.is_recurrent else settings.model.n - 1)


def train_step(
    state: TrainState,
    contexts_BxN: jax.Array,
    targets_B: jax.Array,
    settings: Settings,
    total_steps: int,
    noise: sampled.Noise | None = None,
    layout: sharding.Layout = sharding.ONE_DEVICE,
) -> tuple[TrainState, jax.Array]:
    """One update. Returns: the new state and the batch's mean NLL before it, nats a word.

    noise: what output.kind sampled and nce draw from. With a kind other than full only the rows that the batch needs
    move, and the regulariser is left to `decay`.
    """
    found = gradients(state, contexts_BxN, targets_B, settings, total_steps, noise, layout)
    return update(state, found, settings, total_steps, layout), found.nll


def update(
    state: TrainState, found: Gradients, settings: Settings, total_steps: int, layout: sharding.Layout
) -> TrainState:
    """The state after the update that these gradients make."""
    optimizer = optimizers.build(settings.optimizer, total_steps, settings.train.batch_size)
    if found.rows is None:
        updates, opt_state = optimizer.update(*found.trees, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
    else:  # plain gradient descent keeps nothing of a parameter, and so does not mind whose gradients these are
        updates, opt_state = optimizer.update(found.trees, state.opt_state)
        params = sparse_rows.add(state.params, *layout.replicate(updates), *found.rows)
    return layout.constrain(TrainState(params, opt_state, state.step + 1, found.carry))


def decay(params: objective.Params, step: jax.Array, settings: Settings, total_steps: int, num_steps: int):
    """The parameters after the decay of the `num_steps` updates from `step` on, where `train_step` leaves it out."""
    if not settings.output.moves_few_rows:
        return params
    schedule = optimizers.schedule(settings.optimizer, total_steps, settings.train.batch_size)
    rate_S = jax.vmap(schedule)(step + jnp.arange(num_steps))
    return sparse_rows.shrink(params, jnp.prod(1 - rate_S * settings.optimizer.weight_decay))


@functools.partial(jax.jit, static_argnames=('settings', 'total_steps', 'num_steps', 'layout'), donate_argnames='state')
def train_steps(
    state: TrainState,
    tokens_T: jax.Array,
    order_T: jax.Array,
    first: jax.Array,
    settings: Settings,
    total_steps: int,
    num_steps: int,
    noise: sampled.Noise | None = None,
    layout: sharding.Layout = sharding.ONE_DEVICE,
) -> tuple[TrainState, jax.Array]:
    """`num_steps` updates in one dispatch, on the words order_T[first * B : (first + num_steps) * B].

    Deviation: with an output.kind other than full, the weights decay once, by what these updates would have.
    The state given is donated: use only the one returned. Returns: the new state and the mean NLL of each batch.
    """
    B = settings.train.batch_size
    positions_SxB = jax.lax.dynamic_slice(order_T, (first * B,), (num_steps * B,)).reshape(num_steps, B)

    def step(state, positions_B):
        given = batch(settings, tokens_T, positions_B)
        state, nll = train_step(state, *given, settings, total_steps, noise, layout)
        # Where few rows move they are gathered first, and a row should lie together.
        return (state if settings.output.moves_few_rows else layout.words_last(state)), nll

    after, nll_S = jax.lax.scan(step, state, positions_SxB)
    return after.replace(params=decay(after.params, state.step, settings, total_steps, num_steps)), nll_S


def fit(
    settings: Settings,
    data: dataset.Dataset,
    store: CheckpointStore,
    reporter: Reporter,
    interrupted: Callable[[], int] = lambda: 0,
) -> tuple[objective.Params, Progress]:
    """Trains to the last epoch, or until validation has not improved for `train.patience` evaluations.

    Goes on from the newest checkpoint in `store`. Same settings and data give the same parameters, bit for bit
    on a CPU, however often it was stopped and started again; over other devices, to the rounding of their sums.
    With several processes each calls this; the first one's checkpoint and validation count.

    interrupted: the number of a signal that asks to stop, 0 for none.
    Returns: the parameters that were best on validation, and the final progress.
    Raises: finite.NonFiniteError, the last good checkpoint kept (`replaying` tells more); Interrupted, after saving.
    """
    return dispatching.drive(dispatches(settings, data, store, reporter, interrupted, time.perf_counter()))


def dispatches(settings, data, store, reporter, interrupted, started):
    """`fit` as a generator of partials of `train_steps`. started: time.perf_counter() when `Progress.seconds` began."""
    layout, schedule = sharding.build(settings), make_schedule(settings, data.train)
    state, best, progress = begin(settings, schedule, data, store)
    noise = layout.everywhere(sampled.for_data(data, settings.output))
    state, tokens_T = layout.put(state), layout.everywhere(data.tokens_T)
    whole = functools.partial(layout.get, num_words=len(data.vocabulary))
    before = progress.seconds
    reporter.start(progress, schedule, settings.train.batch_size)
    epoch, order_T = -1, None
    while not progress.finished:
        if signal_number := multihost.allreduce_max(interrupted()):
            _save(store, whole(state), best, progress)
            raise Interrupted(progress.step, signal_number)
        if epoch != (epoch := progress.step // schedule.steps_per_epoch):
            order_T = layout.everywhere(order(settings, epoch, data.train))
        first = progress.step
        step, place = schedule.next_boundary(first), first % schedule.steps_per_epoch
        state, nll_S, took = yield functools.partial(
            train_steps, state, tokens_T, order_T, place, settings, schedule.total_steps, step - first, noise, layout
        )
        finite.check_losses(nll_S, first)
        seconds, took = before + time.perf_counter() - started, progress.train_seconds + took
        progress = dataclasses.replace(progress, step=step, seconds=seconds, train_seconds=took)
        reporter.trained(progress, nll_S)
        if schedule.is_due(schedule.log_every, first, step) or schedule.is_due(schedule.evaluate_every, first, step):
            finite.check(state, step)
        if schedule.is_due(schedule.evaluate_every, first, step):
            progress, best = _validate(settings, schedule, data, whole(state.params), best, progress)
            reporter.validated(progress)
        if progress.finished or schedule.is_due(schedule.checkpoint_every, first, step):
            _save(store, whole(state), best, progress)
    if signal_number := multihost.allreduce_max(interrupted()):  # during the last dispatch or validation
        raise Interrupted(progress.step, signal_number)
    return best, progress


def begin(
    settings: Settings, schedule: Schedule, data: dataset.Dataset, store: CheckpointStore, before: int | None = None
) -> tuple[TrainState, objective.Params, Progress]:
    """State, best parameters and progress: those of the newest checkpoint, else the first ones.

    before: an update, to begin with the newest checkpoint before that one.
    """
    bias = dataset.unigram_log_probabilities(data) if settings.model.unigram_bias else None
    state = init_state(settings, len(data.vocabulary), bias, schedule.total_steps)
    if (restored := store.restore(state, state.params, before)) is None:
        restored = state, jax.tree.map(jnp.copy, state.params), {}
    progress = multihost.broadcast_from_primary(jax.tree.map(np.asarray, dataclasses.asdict(Progress(**restored[2]))))
    return *multihost.broadcast_from_primary(restored[:2]), Progress(**{k: v.item() for k, v in progress.items()})


def _validate(settings, schedule, data, params, best, progress):
    """Compares with the best so far, and decides whether training is over."""
    model = language_model.from_params(params, settings.model.n)
    nll = float(
        multihost.broadcast_from_primary(np.float64(evaluation.evaluate(model, data.tokens_T, data.valid).mean_nll))
    )
    progress = dataclasses.replace(progress, valid_nll=nll, evaluations_since_best=progress.evaluations_since_best + 1)
    if nll < progress.best_valid_nll:
        best = jax.tree.map(jnp.copy, params)
        progress = dataclasses.replace(progress, best_step=progress.step, best_valid_nll=nll, evaluations_since_best=0)
    over = progress.step >= schedule.total_steps or progress.evaluations_since_best >= settings.train.patience
    return dataclasses.replace(progress, finished=over), best


def _save(store: CheckpointStore, state: TrainState, best: objective.Params, progress: Progress) -> None:
    """Writes a checkpoint, but never of numbers that are not finite."""
    finite.check(state, progress.step)
    store.save(progress.step, state, best, dataclasses.asdict(progress))
