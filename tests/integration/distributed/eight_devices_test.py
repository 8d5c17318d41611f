"""Tests that training on eight simulated devices gives the same results as training on one device."""

import contextlib
import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bag_of_features import BagOfFeatures
from helpers import (
    DATA,
    ENERGY,
    IMPORTANCE,
    SPARSE,
    RecordingReporter,
    assert_close,
    make_batch,
    make_network,
    numbers,
    others_nightly,
    penalised_nll,
    refuses,
    run_chunk,
    same_bits,
    small_settings,
)

from experiments.paper.parallel import counts, program
from nplm_jax.config.sections import ParallelSettings
from nplm_jax.data import encoding, vocabulary
from nplm_jax.data.corpora import Corpus
from nplm_jax.data.stream import Span
from nplm_jax.data.word_stream import WordStream
from nplm_jax.distributed import sharding
from nplm_jax.distributed.sharding import ONE_DEVICE, MeshSharding, make_mesh, read_rows
from nplm_jax.distributed.sharding_from_settings import make_sharding
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.models import network_reading, neural
from nplm_jax.models.network import Network
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.runs.program_from_settings import paddings_of
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import step as step_lib
from nplm_jax.training import train as train_lib
from nplm_jax.training.checkpoints import CheckpointStore
from nplm_jax.training.step import TrainState, execute_steps
from nplm_jax.training.train import Interrupted, fit
from nplm_jax.utils.errors import NonFiniteError

pytestmark = pytest.mark.eight_devices

MESHES = [(1, 1), (8, 1), (1, 8), (4, 2), (2, 4)]
LAYOUTS = [(*mesh, 'shard_map') for mesh in MESHES] + [(8, 1, 'pmap')]
V = len(DATA.vocabulary)
BASE = {'train.batch_size': 16, 'optimizer.learning_rate': 0.05, 'optimizer.clip_norm': 1.0, 'train.epochs': 800}
EPOCH = {'train.steps_per_execution': 13}  # 220 words give 13 updates of 16 words
NETWORK = make_network(V)
LOSS_AND_GRADIENTS = jax.jit(jax.value_and_grad(penalised_nll, has_aux=True), static_argnames=('network', 'sharding'))


def mesh_sharding(data, model, mode='shard_map', network=NETWORK):
    return MeshSharding(make_mesh(data, model), mode, paddings_of(network))


def on_mesh(changes, data=1, model=1, mode='shard_map'):
    """Returns `small_settings(changes)` over a mesh."""
    return small_settings({**changes, 'parallel.data': data, 'parallel.model': model, 'parallel.mode': mode})


# --- one batch -------------------------------------------------------------------------------------------


@functools.cache
def batch_on_one_device(network):
    """Returns parameters, the other arguments of LOSS_AND_GRADIENTS, and its results."""
    random, num_words, num_context = (
        np.random.default_rng(0),
        network.vocabulary_size,
        network.layout.lookback + 1,
    )
    params = network.init(jax.random.key(1), random.normal(size=num_words).astype(np.float32))
    contexts_BxN, targets_B = (
        jnp.asarray(random.integers(0, num_words, s), jnp.int32) for s in ((24, num_context), 24)
    )
    arguments = dict(batch=make_batch(contexts_BxN, targets_B), weight_decay=1e-3, key=jax.random.key(2))
    return params, arguments, LOSS_AND_GRADIENTS(params, network, **arguments)


def check_loss_and_gradients(layout, network, tolerance):
    mesh = mesh_sharding(*layout, network=network)
    params, arguments, (expected, expected_grads) = batch_on_one_device(network)
    (penalized, nll), grads = LOSS_AND_GRADIENTS(mesh.shard(params), network, sharding=mesh, **arguments)
    np.testing.assert_allclose((penalized, nll), expected, rtol=tolerance)
    grads = mesh.unshard(grads, network.vocabulary_size)
    for a, b in zip(jax.tree.leaves(grads), jax.tree.leaves(expected_grads), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * float(jnp.abs(b).max()))


@pytest.mark.parametrize('data,model,mode', LAYOUTS)
@pytest.mark.parametrize('h,direct', others_nightly([(5, False), (0, True), (5, True)], [(5, True)]))
def test_loss_and_every_gradient_equal_one_devices(data, model, mode, h, direct):
    network = make_network(101, {'model.h': h, 'model.direct': direct, 'model.dropout': 0.2, 'output.block_size': 7})
    check_loss_and_gradients((data, model, mode), network, 1e-5)


def test_in_bfloat16_they_differ_by_its_rounding():
    changes = {'model.dropout': 0.2, 'output.block_size': 7, 'output.precision': 'bfloat16'}
    check_loss_and_gradients((2, 4), make_network(101, changes), 1e-2)


@pytest.mark.parametrize('data,model,mode', [(8, 1, 'shard_map'), (2, 4, 'shard_map'), (8, 1, 'pmap')])
def test_a_new_body_needs_nothing_for_a_mesh(data, model, mode):
    network = Network(BagOfFeatures(4, 4), make_network(101).output, 101)
    check_loss_and_gradients((data, model, mode), network, 1e-5)


@pytest.mark.parametrize('data,model,mode', LAYOUTS)
@pytest.mark.parametrize('num_rows', others_nightly([3, 16, 21], [21]))
def test_devices_read_rows_in_shares(data, model, mode, num_rows):
    rows, shares = np.arange(3 * num_rows).reshape(num_rows, 3), []

    def read(first, last):
        shares.append(last - first)
        return rows[first:last]

    on_all = read_rows(read, num_rows, 3, mesh_sharding(data, model, mode))
    assert on_all.is_fully_replicated and len(shares) == data * model
    assert max(shares) <= -(-num_rows // (data * model))
    np.testing.assert_array_equal(on_all[:num_rows], rows)
    np.testing.assert_array_equal(on_all[num_rows:], np.tile(rows[-1], (len(on_all) - num_rows, 1)))


# --- evaluation ------------------------------------------------------------------------------------------


EVALUATED = [('nplm', 'full'), ('residual', 'two_level'), ('window_lstm', 'tree'), ('lstm', 'full')]
EVALUATED += [('transformer', 'two_level'), ('qrnn', 'tree')]
EVALUATION_MESHES = [(8, 1), (2, 4), (1, 8)]


@pytest.mark.parametrize(
    'family,kind,shape',
    others_nightly(
        [(*network, shape) for network in EVALUATED for shape in EVALUATION_MESHES],
        [(*network, shape) for network, shape in zip(EVALUATED, 2 * EVALUATION_MESHES)],
    ),
)
def test_devices_divide_the_evaluated_words_and_the_vocabulary(family, kind, shape):
    changes = {'model.family': family, 'output.kind': kind, 'output.num_shortlist': 12, 'model.direct': False}
    changes |= {'output.classes': 7, 'model.tied': False, 'model.heads': 1}
    V = 2501 if kind == 'full' else 101  # on a CPU, a softmax scores 2,048 words at once
    network = make_network(V, {**changes, 'train.batch_size': 8, 'model.bptt_length': 4})
    params, random = network.init(jax.random.key(1)), np.random.default_rng(0)
    params = jax.tree.map(lambda x: x + 0.1 * random.normal(size=x.shape).astype(x.dtype), params)
    tokens_T, groups_V = random.integers(0, V, 5000).astype(np.int32), random.integers(0, 3, V)
    mesh = mesh_sharding(*shape, network=network)
    one, all_eight = (NeuralLanguageModel(network, devices.shard(params), devices) for devices in (ONE_DEVICE, mesh))
    for span in (Span(0, 5000), Span(700, 713)):  # several blocks per device; less than one block for all devices
        np.testing.assert_allclose(all_eight.score(tokens_T, span), one.score(tokens_T, span), rtol=1e-5, atol=1e-5)
        expected = one.group_probabilities(tokens_T, span, groups_V)
        np.testing.assert_allclose(all_eight.group_probabilities(tokens_T, span, groups_V), expected, rtol=1e-4)
    assert evaluate(all_eight, tokens_T, span).perplexity == pytest.approx(
        evaluate(one, tokens_T, span).perplexity, rel=1e-5
    )
    # With a state, all devices share a block, because a Transformer's memory grows with the square of the words.
    assert (
        all_eight.scoring_block(5000) == (shape[0] * 256 if network.body.start(1) is None else 256)
        and one.scoring_block(5000) == 256
    )
    blocks = network_reading.stream_blocks(network, tokens_T, Span(0, 5000), shape[0] * 256)
    compiled = neural._read_stream.lower(network, all_eight.placed_params, *blocks, None, mesh).compile()
    sent = {size for _, sizes in program.sent_arrays(compiled.as_text()) for size in sizes}
    assert not sent if shape[1] == 1 else sent and not sent & {V, V + -V % shape[1]}  # no array with one row per word
    assert compiled.output_shardings.is_fully_replicated == (shape[0] == 1)
    assert len(compiled.output_shardings.device_set) == 8


def test_a_run_on_a_mesh_validates_on_all_of_its_devices(monkeypatch):
    used, read_stream = [], neural._read_stream
    monkeypatch.setattr(neural, '_read_stream', lambda *args: used.append(args[-1].devices) or read_stream(*args))
    fit(train_lib.train(prepare_run(on_mesh({**BASE, 'train.epochs': 1}, 2, 4), DATA), None, RecordingReporter()))
    assert used and all(devices == jax.devices() for devices in used)


# --- initialization and checkpoints ------------------------------------------------------------------------


@pytest.mark.parametrize('data,model', [(8, 1), (1, 8), (2, 4)])
@pytest.mark.parametrize('name', ['adam', 'optax.contrib:schedule_free_adamw'])
def test_the_initial_state_is_one_devices_and_no_device_makes_all_rows(data, model, name):
    changes = {**BASE, 'optimizer.name': name, 'train.average': 0.9 if name == 'adam' else 0.0}
    changes |= {'optimizer.tables': 'same', 'optimizer.clip_norm': 0.0} if ':' in name else {}
    on_one, run = (prepare_run(on_mesh(changes, *mesh), DATA) for mesh in ((1, 1), (data, model)))
    expected, state = on_one.init_state(), run.init_state()
    placed = run.program.sharding.shard(expected)
    # Bitwise equal if XLA optimizes. The tests disable optimizations; XLA then rounds the range of uniform() twice.
    assert_close(state, placed, rtol=1e-6, atol=1e-7)
    assert_close(run.program.unshard(state), expected, rtol=1e-6, atol=1e-7)
    for array, wanted in zip(jax.tree.leaves(state), jax.tree.leaves(placed), strict=True):
        assert array.sharding.is_equivalent_to(wanted.sharding, array.ndim)
    text = step_lib.init_state.lower(run.program, run.seed, run.hyperparams).compile().as_text()
    assert program.sent_arrays(text) == [] and (model == 1 or f'[{V},5]' not in text)


def test_what_a_run_keeps_stays_divided(tmp_path):
    run = prepare_run(on_mesh({**BASE, 'train.epochs': 1, 'train.calibrate': True}, 2, 4), DATA)
    with contextlib.closing(CheckpointStore(tmp_path)) as store:
        trained = fit(train_lib.train(run, store, RecordingReporter()))
        state, best, _ = train_lib.restore_or_init(run, store)
    for params in (trained.params, state.params, best.params):
        assert {name: len(params[name].addressable_data(0)) for name in ('U_VxK', 'b_V')} == {'U_VxK': 5, 'b_V': 5}
    assert same_bits(best.params, trained.params)


# --- many updates ----------------------------------------------------------------------------------------


def train(settings, num_epochs):
    """Returns a run, and its state on its mesh after some epochs."""
    run = prepare_run(settings, DATA)
    state, step = run.init_state(), 0
    while step < num_epochs * run.schedule.steps_per_epoch:
        state, nll_S = run_chunk(run.chunk(state, step))  # wait, because simulated devices must not run ahead
        assert np.isfinite(nll_S).all()
        step += len(nll_S)
    return run, state


def perplexity(network, params):
    return evaluate(NeuralLanguageModel(network, params), DATA.tokens_T, DATA.valid).perplexity


@functools.cache
def perplexity_on_one_device(settings):
    run, state = train(settings, 16)
    return perplexity(run.program.network, state.params)


@pytest.mark.parametrize('data,model,mode', LAYOUTS)
def test_two_hundred_updates_end_at_one_devices_perplexity(data, model, mode):
    run, state = train(on_mesh({**BASE, **EPOCH}, data, model, mode), 16)
    network, params = run.program.network, run.program.sharding.unshard(state.params, V)
    assert perplexity(network, params) == pytest.approx(
        perplexity_on_one_device(small_settings({**BASE, **EPOCH})), abs=1e-4
    )
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == network.num_parameters()


@pytest.mark.parametrize('name', ['adam', 'adagrad', 'rowwise_adam', 'optax.contrib:schedule_free_adamw', 'optax:lamb'])
def test_the_words_that_pad_the_vocabulary_never_move(name):
    changes = {**BASE, **EPOCH, 'optimizer.name': name, 'optimizer.learning_rate': 0.01, 'optimizer.clip_norm': 0.0}
    changes['optimizer.row_adaptivity'] = 0.5
    if ':' in name:
        changes |= {'optimizer.tables': 'same', 'optimizer.row_adaptivity': 1.0}
    run, state = train(on_mesh(changes, 2, 4), 16)
    params = state.params
    assert params['U_VxK'].shape == (20, 5) and not np.any(params['U_VxK'][V:]) and not np.any(params['W_VxP'][V:])
    assert np.all(params['b_V'][V:] == sharding.PADDING_BIAS)
    unpadded = run.program.sharding.unshard(params, V)
    expected = perplexity_on_one_device(small_settings(changes))
    assert perplexity(run.program.network, unpadded) == pytest.approx(expected, abs=1e-4)


@pytest.mark.nightly
def test_three_thousand_updates_end():
    changes = {**BASE, 'train.steps_per_execution': 50, 'train.batch_size': 4}  # 55 updates per epoch
    run, state = train(on_mesh(changes, 2, 4), 55)
    assert int(state.step) == 55 * run.schedule.steps_per_epoch > 3000


FAMILIES = ('lstm', 'rnn', 'gru')
RECURRENT_MESHES = {'full': (2, 4, 'shard_map'), 'sampled': (2, 4, 'shard_map'), 'nce': (8, 1, 'pmap')}
RECURRENT_MESHES |= {'two_level': (4, 2, 'shard_map'), IMPORTANCE: (4, 2, 'shard_map')}
RECURRENT = {'model.direct': False, 'train.batch_size': 32, 'model.bptt_length': 4, 'train.epochs': 100}
RECURRENT |= {'optimizer.learning_rate': 0.1, 'train.steps_per_execution': 3}


OTHERS = (
    [('lstm', 'full', (8, 1, 'pmap')), ('lstm', 'full', RECURRENT_MESHES['full'])]
    + [(family, kind, RECURRENT_MESHES[kind]) for family in FAMILIES for kind in ('sampled', 'nce', 'two_level')]
    + [
        (family, 'sampled', RECURRENT_MESHES['sampled'])
        for family in ('window_lstm', 'mogrifier', 'attentive_mogrifier', 'transformer')
    ]
    + [(ENERGY, kind, RECURRENT_MESHES[kind]) for kind in ('sampled', 'nce')]
    + [('nplm', 'tree', (2, 4, 'shard_map')), ('lstm', 'tree', (8, 1, 'pmap'))]
    + [('lstm', IMPORTANCE, RECURRENT_MESHES[IMPORTANCE]), ('gru', IMPORTANCE, (8, 1, 'pmap'))]
)
EVERY_PUSH = ('lstm', 'full', (2, 4, 'shard_map')), ('gru', 'sampled', (2, 4, 'shard_map'))


@pytest.mark.parametrize('family,kind,layout', others_nightly(OTHERS, EVERY_PUSH))
def test_other_networks_train_as_on_one_device(family, kind, layout):
    dense = {'optimizer.clip_norm': 1.0} if kind == 'full' else {}
    changes = {**SPARSE, **RECURRENT, **dense, 'model.family': family, 'output.kind': kind}
    if family in ('transformer', 'attentive_mogrifier'):  # at the rate of the others, they amplify rounding errors
        changes |= {'optimizer.learning_rate': 0.003, 'model.memory': 5}
    if family == 'transformer':
        changes |= {'model.heads': 1}
    run, state = train(on_mesh(changes, *layout), 4)  # each epoch begins with a new carry
    _, expected = train(small_settings(changes), 4)
    assert_close(run.program.sharding.unshard(state, V), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('kind', ['sampled', 'two_level', IMPORTANCE])
def test_with_adagrad_sparse_gradients_train_as_on_one_device(kind):
    changes = {**SPARSE, **BASE, **EPOCH, 'output.kind': kind, 'optimizer.name': 'adagrad'}
    run, state = train(on_mesh(changes, 2, 4), 2)
    assert not run.program.scatters_updates
    _, expected = train(small_settings(changes), 2)
    assert_close(run.program.sharding.unshard(state, V), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('kind', ['sampled', 'two_level'])
def test_rows_that_rowwise_adam_updates_alone_train_as_on_one_device(kind):
    rule = {'optimizer.name': 'rowwise_adam', 'optimizer.learning_rate': 0.01, 'optimizer.row_adaptivity': 0.5}
    changes = {**SPARSE, **BASE, **EPOCH, **rule, 'output.kind': kind, 'optimizer.decay': 0.1}
    run, state = train(on_mesh(changes, 2, 4), 2)
    assert run.program.scatters_updates
    _, expected = train(small_settings(changes), 2)
    assert_close(run.program.sharding.unshard(state, V), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    'family,kind,own',
    [
        ('ValueProjection', 'full', None),
        ('ValueProjection', 'value_projection:OffsetSoftmax', 'offsets'),
        ('ScaledWords', 'nce', 'scale'),
    ],
)
def test_rows_are_divided_where_a_part_declares_them_whatever_the_names(family, kind, own):
    changes = {**SPARSE, **BASE, **EPOCH, 'model.m': 6, 'optimizer.name': 'rowwise_adam', 'output.kind': kind}
    changes |= {'model.family': f'value_projection:{family}', 'model.direct': False, 'optimizer.learning_rate': 0.01}
    run, state = train(on_mesh(changes, 2, 4), 2)
    params = state.params
    assert params['W_V'].shape == (6, 6) and params['attention']['b_V'].shape == (6,)
    assert params['W_V'].is_fully_replicated and params['attention']['b_V'].is_fully_replicated
    for name in ('b_V', 'U_VxM', own) if own else ('b_V', 'U_VxM'):
        assert len(params[name]) == 20 and params[name].addressable_data(0).shape[0] == 5
    _, expected = train(small_settings(changes), 2)
    assert_close(run.program.sharding.unshard(state, V), expected, rtol=1e-4, atol=1e-5)


# --- from one topology to another ------------------------------------------------------------------------


class RecordingStore(CheckpointStore):
    """A store that records the state that was last saved or restored."""

    def save(self, step, state, best, progress):
        self.saved = jax.tree.map(np.array, state)  # training will donate its arguments
        super().save(step, state, best, progress)

    def restore(self, state, best):
        restored = super().restore(state, best)
        self.restored = restored and jax.tree.map(np.array, restored[0])
        return restored


def test_any_topology_resumes_on_any_other_bit_for_bit(tmp_path):
    def train_on(data, model, folder, stop_at=None):
        settings = on_mesh({**BASE, **EPOCH, 'train.epochs': 3}, data, model)
        looks, best = iter(range(10**6)), None
        interrupted = lambda: 15 if next(looks) == stop_at else 0  # noqa: E731
        with contextlib.closing(RecordingStore(folder)) as store, contextlib.suppress(Interrupted):
            best = fit(train_lib.train(prepare_run(settings, DATA), store, RecordingReporter(), interrupted)).params
        return store, best

    first, _ = train_on(8, 1, tmp_path / 'chain', 1)
    second, _ = train_on(2, -1, tmp_path / 'chain', 1)
    third, best = train_on(1, 1, tmp_path / 'chain')
    assert int(first.saved.step) == 13 and int(second.saved.step) == 26
    assert same_bits(first.saved, second.restored) and same_bits(second.saved, third.restored)
    mesh = mesh_sharding(2, 4)
    assert same_bits(mesh.unshard(mesh.shard(first.saved), V), first.saved)
    _, unbroken = train_on(1, 1, tmp_path / 'unbroken')
    assert_close(best, unbroken, atol=1e-5)


@pytest.mark.parametrize('kind,shape', [('full', (2, 4)), pytest.param('nce', (4, 2), marks=pytest.mark.nightly)])
def test_an_update_whose_numbers_are_not_finite_is_named(tmp_path, kind, shape):
    climb = {'optimizer.learning_rate': 100.0, 'optimizer.schedule': 'linear', 'optimizer.warmup': 30}
    climb |= {'optimizer.decay': 1.0, 'train.batch_size': 16, 'train.checkpoint_every': 8}
    settings = on_mesh({**SPARSE, **climb, 'output.kind': kind}, *shape)
    with contextlib.closing(CheckpointStore(tmp_path)) as store:
        with pytest.raises(NonFiniteError) as raised:
            fit(train_lib.train(prepare_run(settings, DATA), store, RecordingReporter()))
        (number,) = re.findall(r'update (\d+)', str(raised.value))
        assert 8 <= store.latest_step() < int(number)


# --- what parallel.* may be ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    'data,model,mode,key,number',
    [
        (9, 1, 'shard_map', 'parallel.data', '8'),
        (-1, 9, 'shard_map', 'parallel.model', '8'),
        (9, -1, 'shard_map', 'parallel.data', '8'),
        (5, 1, 'shard_map', 'train.batch_size', '5'),
        (2, 2, 'pmap', 'parallel.model', '1'),
    ],
)
def test_what_the_devices_cannot_do_is_one_line(data, model, mode, key, number):
    with refuses(key) as caught:
        make_sharding(ParallelSettings(data, model, mode), 16, 16, uses_sparse_updates=False)
    assert number in numbers(caught.value.problem) and '\n' not in str(caught.value)


def test_with_sparse_updates_all_devices_share_the_batch():
    build = functools.partial(make_sharding, batch_size=12, num_streams=12, uses_sparse_updates=True)
    with refuses('train.batch_size') as caught:
        build(ParallelSettings(2, 4, 'shard_map'))
    assert '8' in numbers(caught.value.problem)
    assert build(ParallelSettings(2, 3, 'shard_map')).mesh.shape == {'data': 2, 'model': 3}


def test_the_devices_of_a_batch_divide_its_streams():
    with refuses('parallel.data') as caught:
        make_sharding(ParallelSettings(8, 1, 'shard_map'), 16, 4, uses_sparse_updates=False)
    assert '4' in numbers(caught.value.problem)


@pytest.mark.parametrize('data,model,shape', [(-1, 2, (4, 2)), (2, -1, (2, 4)), (-1, 1, (8,)), (3, 2, (3, 2))])
def test_minus_one_takes_all_devices_that_are_left(data, model, shape):
    mesh = make_sharding(ParallelSettings(data, model, 'shard_map'), 48, 48, uses_sparse_updates=False).mesh
    assert tuple(mesh.shape.values()) == shape


def test_several_processes_use_all_devices_and_never_pmap(monkeypatch):
    monkeypatch.setattr(jax, 'process_count', lambda: 2)
    build = functools.partial(make_sharding, batch_size=16, num_streams=16, uses_sparse_updates=False)
    assert build(ParallelSettings(4, 2, 'shard_map')).mesh.size == 8
    with refuses('parallel.data') as caught:
        build(ParallelSettings(2, 2, 'shard_map'))
    assert '8' in numbers(caught.value.problem)
    with refuses('parallel.mode'):
        build(ParallelSettings(8, 1, 'pmap'))


def test_rows_that_pad_the_words_are_zeros_and_their_words_are_never_predicted():
    params = {'U_VxK': jnp.ones((V, 3)), 'b_V': jnp.zeros(V), 'C_VxM': jnp.ones((V, 2))}
    state = TrainState(params, {'b_V': jnp.zeros(V)}, jnp.int32(0), jnp.int32(1))
    padded = mesh_sharding(2, 4).shard(state)
    missing = -V % 4
    assert missing and len(padded.params['U_VxK']) == V + missing == len(padded.params['b_V'])
    assert not padded.params['U_VxK'][V:].any() and not padded.opt_state['b_V'].any()
    assert (padded.params['b_V'][V:] <= -1e8).all() and not padded.params['b_V'][:V].any()
    assert len(padded.params['C_VxM']) == V


def test_one_by_one_is_no_mesh():
    assert make_sharding(ParallelSettings(1, 1, 'shard_map'), 16, 16, uses_sparse_updates=False) is ONE_DEVICE


# --- what is sent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize('data,model', MESHES)
@pytest.mark.parametrize('h,direct', others_nightly([(5, True), (7, False), (0, True)], [(5, True)]))
def test_the_compiled_update_sends_what_the_formula_says(data, model, h, direct):
    settings = small_settings({'model.h': h, 'model.direct': direct}).model
    compiled = program.compile_update(settings, 101, 24, data, model)
    assert program.all_reduced_bytes(compiled.as_text()) == counts.sent(settings, 101, 24, data, model)


# --- gradients that need a few rows only -----------------------------------------------------------------


@functools.cache
def many_words():
    """Returns a corpus that contains each word of a vocabulary of 8,011 words."""
    random = np.random.default_rng(4)
    ids = np.concatenate([random.permutation(8011), np.minimum(random.zipf(1.3, 2000), 8011) - 1])
    words = [f'w{i}' for i in ids]
    corpus = Corpus(Span(0, 9800), Span(9800, 9900), Span(9900, 10011), WordStream.from_words(words))
    return encoding.build_dataset(corpus, vocabulary.build(words))


def compile_and_train(settings):
    """Returns the text of the program for 50 updates, the run, and its state after 200 updates.

    The updates of IMPORTANCE end after 50. Later words are drawn from sums of counts, and a rounding difference draws
    another word.
    """
    run = prepare_run(settings, many_words())
    state = run.init_state()
    compiled = execute_steps.lower(*run.chunk(state, 0)).compile()
    for step in range(0, 50 if run.program.network.output.name == IMPORTANCE else 200, 50):
        _, state, positions_T, first, _, inputs = run.chunk(state, step)
        state, nll_S = compiled(state, positions_T, first, inputs)
        assert np.isfinite(np.asarray(nll_S)).all()
    return compiled.as_text(), run, state


@functools.cache
def sparse_on_one_device(settings):
    _, run, state = compile_and_train(settings)
    return state, many_words_perplexity(run, state.params)


def many_words_perplexity(run, params):
    data = many_words()
    return evaluate(NeuralLanguageModel(run.program.network, params), data.tokens_T, data.valid).perplexity


SPARSE_LAYOUTS = [(*mesh, 'shard_map') for mesh in ((8, 1), (1, 8), (2, 4))] + [(8, 1, 'pmap')]
QUICK = [('sampled', False, 1, 8, 'shard_map'), ('nce', True, 8, 1, 'pmap'), ('two_level', True, 2, 4, 'shard_map')]
QUICK += [(IMPORTANCE, True, 2, 4, 'shard_map')]
CASES = [
    (kind, direct, *layout)
    for kind, direct in (('sampled', False), ('nce', True), ('two_level', True), (IMPORTANCE, True))
    for layout in SPARSE_LAYOUTS
]


@pytest.mark.parametrize('kind,direct,data,model,mode', others_nightly(CASES, QUICK))
def test_sparse_gradients_train_as_on_one_device_and_send_nothing_of_the_vocabulary(kind, direct, data, model, mode):
    shape = {'model.n': 3, 'model.m': 1, 'model.h': 2, 'model.direct': direct, 'train.steps_per_execution': 50}
    output = {'output.kind': kind, 'output.samples': 50, 'output.num_shortlist': 12, 'output.classes': 160}
    changes = {**shape, **output, 'train.batch_size': 8}  # the last class is incomplete
    text, run, state = compile_and_train(on_mesh(changes, data, model, mode))
    num_words = len(many_words().vocabulary)
    params = run.program.sharding.unshard(state.params, num_words)
    expected, expected_perplexity = sparse_on_one_device(small_settings(changes))
    for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(expected.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * float(jnp.abs(b).max()))
    if kind == IMPORTANCE:
        np.testing.assert_allclose(state.output_state.added_G, expected.output_state.added_G, rtol=1e-4, atol=1e-6)
    assert many_words_perplexity(run, params) == pytest.approx(expected_perplexity, rel=1e-4)
    b_V = state.params['b_V']
    assert len(b_V.addressable_data(0)) == -(-num_words // model) and np.all(b_V[num_words:] == sharding.PADDING_BIAS)
    sizes = [math.prod(shape) for _, shape in program.sent_arrays(text)]
    assert 0 < max(sizes) < num_words // 8  # the minimum share of V on a device: its rows of b


@pytest.mark.parametrize('data,model,most', [(8, 1, 2), (2, 4, 4)])
@pytest.mark.parametrize('batch_size', [8, 8192])  # fewer and more rows than C
def test_a_sparse_update_sends_by_a_few_all_reduces_alone(batch_size, data, model, most):
    """The all-reduces exchange table rows, the sums of all gradients, and the moments of rows."""
    rule = {'optimizer.name': 'rowwise_adam', 'optimizer.row_adaptivity': 0.5, 'train.steps_per_execution': 1}
    shape = {'model.n': 3, 'model.m': 1, 'model.h': 2, 'output.kind': 'sampled', 'output.samples': 50}
    run = prepare_run(on_mesh({**rule, **shape, 'train.batch_size': batch_size}, data, model), many_words())
    chunk = run.chunk(run.init_state(), 0)
    text = execute_steps.lower(*chunk).compile().as_text()
    assert program.all_reduced_bytes(text) > 0  # and nothing else is sent
    assert 0 < len(re.findall(r'\sall-reduce(-start)?\(', text)) <= most
