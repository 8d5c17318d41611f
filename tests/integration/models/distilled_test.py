"""Tests training with teachers: the inputs of each teacher, and the distribution that the student learns."""

import contextlib
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DATA, SPARSE, RecordingReporter, assert_close, others_nightly, run_chunk, same_bits, small_settings

from nplm_jax.data.batches import make_batch
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import train as train_lib
from nplm_jax.training import vmapped
from nplm_jax.training.checkpoints import CheckpointStore
from nplm_jax.training.train import Interrupted, fit

STREAM = {'model.family': 'lstm', 'model.n': 5, 'model.direct': False, 'train.batch_size': 12, 'model.bptt_length': 4}
BODIES = {
    'nplm': {'model.n': 6},
    'lstm': STREAM,
    'window_lstm': {**STREAM, 'model.family': 'window_lstm', 'model.n': 4},
    'transformer': {**STREAM, 'model.family': 'transformer', 'model.m': 4, 'model.h': 4, 'model.heads': 2},
}
KINDS = {
    'full': {'output.block_size': 5},
    'sampled': {'output.kind': 'sampled', 'output.samples': 9},
}


def make_teacher(changes=None, seed=7):
    network = network_from_settings(small_settings({**BODIES['lstm'], **(changes or {})}), DATA.vocabulary)
    params = network.init(jax.random.key(seed))
    return NeuralLanguageModel(network, jax.tree.map(lambda x: 3 * x, params))


def make_run(changes=None, *teachers):
    """Returns a run on the test's corpus; the value of the key only indicates that there are teachers."""
    return prepare_run(
        small_settings({'output.teacher': 'given' if teachers else '', **(changes or {})}), DATA, teachers
    )


def read_by_teachers(run, num_updates):
    """Returns the positions of the first updates and the teachers' inputs for each, with the state carried over."""
    network, B = run.program.network, run.program.batch_size
    words, state, found = run.words(0, 0, num_updates * B), network.start(B // network.layout.bptt_length)[1], []
    for positions_SxT in words.positions[: num_updates * B].reshape(num_updates, -1, network.layout.bptt_length):
        batch = make_batch(words.tokens_L, positions_SxT, network.layout.lookback)._replace(
            teachers=run.inputs.teachers
        )
        teachers, state = network.read(batch, state)
        found.append((positions_SxT, teachers))
    return found


@pytest.mark.parametrize('teacher', others_nightly(BODIES, ('lstm',)))
@pytest.mark.parametrize('student', ['nplm', 'lstm'])
def test_a_teacher_predicts_in_training_what_it_predicts_from_the_words_before(student, teacher):
    model = make_teacher(BODIES[teacher])
    run = make_run(BODIES[student], model)
    body, batches = run.program.network.body, read_by_teachers(run, 3)
    first_S = batches[0][0][:, 0]
    for positions_SxT, teachers in batches:
        p_SxTxV = teachers.probabilities('float32').reshape(*positions_SxT.shape, -1)
        for s, t in {(0, 0), (0, body.layout.bptt_length - 1), (len(positions_SxT) - 1, body.layout.bptt_length - 1)}:
            position = int(positions_SxT[s, t])
            # The state begins at the start of the stream; for a shuffled example, it covers the last 32 words.
            first = int(first_S[s]) if body.layout.over_streams else position + 1 - (model.network.body.reach or 32)
            first -= model.network.body.lookback
            ids = [int(DATA.tokens_T[i]) if i >= 0 else 0 for i in range(first - 1, position)]
            output = model.network.features(model.params, jnp.array([ids]))
            features = {name: x[:, -1] for name, x in output.features.items()}
            expected_1xV = np.exp(model.network.output.log_probabilities(model.params, features))
            assert_close(p_SxTxV[s, t], expected_1xV[0], rtol=1e-3, atol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize('student', ['nplm', 'lstm'])
@pytest.mark.parametrize('kind', KINDS)
def test_a_student_of_two_teachers_learns_their_mean(student, kind):
    """The student's cross-entropy with the mean of the teachers approaches the entropy of the mean."""
    models = make_teacher(BODIES['nplm'], 1), make_teacher({**BODIES['nplm'], 'output.kind': 'two_level', **SPARSE}, 2)
    rate = {'optimizer.learning_rate': 0.3, 'train.epochs': 20, 'output.teacher_weight': 1.0, 'model.dropout': 0.0}
    run = make_run({**BODIES[student], **KINDS[kind], **rate}, *models)
    contexts_BxN = np.stack([DATA.tokens_T[i : i + 12] for i in range(0, 200, 5)])
    q_BxV = np.mean([np.exp(model.next_word(contexts_BxN)) for model in models], axis=0)

    def divergence(params):
        log_p_BxV = NeuralLanguageModel(run.program.network, params).next_word(contexts_BxN)
        return (q_BxV * (np.log(q_BxV) - log_p_BxV)).sum(1).mean()

    state, before = run.init_state(), divergence(run.init_state().params)
    while state.step < run.schedule.total_steps:
        state, _ = run_chunk(run.chunk(state, int(state.step)))
    assert divergence(state.params) < 0.5 * before


@pytest.mark.nightly
@pytest.mark.parametrize('kind', KINDS)
def test_without_weight_the_updates_are_those_without_a_teacher(kind):
    changes = {**BODIES['lstm'], **KINDS[kind], 'output.teacher_weight': 0.0}
    taught, alone = make_run(changes, make_teacher(BODIES['nplm'])), make_run(changes)
    (one, one_nll), (other, other_nll) = (run_chunk(run.chunk(run.init_state(), 0)) for run in (taught, alone))
    assert_close((one.params, one_nll), (other.params, other_nll), rtol=1e-4, atol=1e-6)


MOST = {**BODIES['lstm'], 'output.kind': 'sampled', 'output.samples': 9}


MODES = 'shard_map', 'pmap'
WAYS = {
    'in microbatches': {'train.accumulate': 3},
    'of a mapped text': {'train.input': 'mapped'},
    'one by one': {'train.steps_per_execution': 1},
}


@pytest.mark.parametrize(
    'way,kind',
    others_nightly(
        itertools.product(WAYS, KINDS),
        [('in microbatches', 'sampled'), ('of a mapped text', 'full'), ('one by one', 'sampled')],
    ),
)
@pytest.mark.parametrize('teacher', others_nightly(['lstm', 'window_lstm'], ('lstm',)))
def test_updates_with_a_teacher_are_the_same(way, teacher, kind):
    base = {**BODIES['lstm'], **KINDS[kind], 'model.dropout': 0.0}
    params, carries = [], []
    for run in (make_run({**base, **more}, make_teacher(BODIES[teacher])) for more in ({}, WAYS[way])):
        state = run.init_state()
        while state.step < 8:
            state, _ = run_chunk(run.chunk(state, int(state.step)))
        params.append(state.params)
        carries.append(state.carry)
    assert_close(params[1], params[0], rtol=1e-4, atol=1e-6)
    assert_close(carries[1], carries[0], rtol=1e-4, atol=1e-6)


def test_a_stopped_training_goes_on_with_the_states_of_its_teachers(tmp_path):
    run = make_run(MOST, make_teacher())

    def train(folder, interrupted):
        with contextlib.closing(CheckpointStore(folder)) as store:
            return fit(train_lib.train(run, store, RecordingReporter(), interrupted)).params

    expected, looks = train(tmp_path / 'at once', lambda: 0), iter(range(1000))
    best, stops = None, 0
    while best is None:
        try:
            best = train(tmp_path / 'in parts', lambda: 15 if next(looks) % 6 == 5 else 0)
        except Interrupted:
            stops += 1
    assert stops > 1 and same_bits(best, expected)


def test_students_that_train_together_are_those_that_train_alone():
    runs = [make_run({**MOST, 'seed': seed}, make_teacher()) for seed in (1, 2)]
    assert runs[0].program == runs[1].program
    chunks = [run.chunk(run.init_state(), 0) for run in runs]
    for (state, *_), chunk in zip(vmapped.run_chunks(chunks, 2), chunks, strict=True):
        assert_close(state.params, run_chunk(chunk)[0].params, rtol=1e-4, atol=1e-6)


@pytest.mark.eight_devices
@pytest.mark.parametrize('kind', others_nightly(KINDS, ('full',)))
@pytest.mark.parametrize(
    'student,teacher,mode',
    others_nightly(
        [(*pair, mode) for pair in (('lstm', 'lstm'), ('nplm', 'lstm'), ('lstm', 'nplm')) for mode in MODES],
        [('lstm', 'lstm', 'pmap'), ('nplm', 'lstm', 'shard_map'), ('lstm', 'nplm', 'shard_map')],
    ),
)
def test_students_on_four_devices_are_those_of_one(student, teacher, mode, kind):
    base, params = {**BODIES[student], **KINDS[kind], 'train.batch_size': 16, 'model.dropout': 0.0}, []
    for mesh in ({}, {'parallel.data': 4, 'parallel.mode': mode}):
        run = make_run({**base, **mesh}, make_teacher(BODIES[teacher]))
        state = run.init_state()
        for step in (0, 4):
            state, _ = run_chunk(run.chunk(state, step))
        params.append(run.program.sharding.unshard(state.params, len(DATA.vocabulary)))
    assert_close(params[1], params[0], rtol=1e-4, atol=1e-5)
