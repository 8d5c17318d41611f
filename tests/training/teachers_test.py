"""Training with teachers: what each of them reads beside a student, and what the student learns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import DATA, SPARSE, assert_close, run_chunk, small_settings

from nplm_jax.data.dataset import make_batch
from nplm_jax.models.network import Network
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.outputs.teacher import mean_probabilities
from nplm_jax.training.loop import prepare_run

STREAM = {'model.family': 'lstm', 'model.n': 5, 'model.direct': False, 'train.batch_size': 12, 'train.bptt_length': 4}
BODIES = {
    'nplm': {'model.n': 6},
    'lstm': STREAM,
    'window_lstm': {**STREAM, 'model.family': 'window_lstm', 'model.n': 4},
    'transformer': {**STREAM, 'model.family': 'transformer', 'model.m': 4, 'model.h': 4},
}
KINDS = {
    'full': {'output.block_size': 5},
    'sampled': {'output.kind': 'sampled', 'output.samples': 9, 'optimizer.momentum': 0.0},
}


def make_teacher(changes=None, seed=7):
    network = Network.make(small_settings({**BODIES['lstm'], **(changes or {})}), DATA.vocabulary)
    params = network.init(jax.random.key(seed))
    return NeuralLanguageModel(network, jax.tree.map(lambda x: 3 * x, params))


def make_run(changes=None, *teachers):
    """Returns a run on the test's corpus; the key only says that there are teachers."""
    return prepare_run(
        small_settings({'output.teacher': 'given' if teachers else '', **(changes or {})}), DATA, teachers
    )


def read_by_teachers(run, num_updates):
    """Returns the batches of the first updates, and what the teachers read of each, with the state carried."""
    network, B = run.program.network, run.program.batch_size
    words, state, found = run.words(0, 0, num_updates * B), network.training_start(B // network.body.bptt_length), []
    for positions_SxT in words.positions[: num_updates * B].reshape(num_updates, -1, network.body.bptt_length):
        batch = make_batch(words.tokens_L, positions_SxT, network.training_lookback)
        own, state, teachers, states = network.with_teachers(batch, state, run.inputs.teacher_params)
        state = state, states
        found.append((positions_SxT, own, teachers))
    return found


@pytest.mark.parametrize('teacher', BODIES)
@pytest.mark.parametrize('student', ['nplm', 'lstm'])
def test_a_teacher_predicts_in_training_what_it_predicts_from_the_words_before(student, teacher):
    model = make_teacher(BODIES[teacher])
    run = make_run(BODIES[student], model)
    body, batches = run.program.network.body, read_by_teachers(run, 3)
    first_S = batches[0][0][:, 0]
    for positions_SxT, own, (teaching,) in batches:
        assert own.ids_SxL.shape[1] == body.training_lookback + body.bptt_length
        p_SxTxV = mean_probabilities([teaching], 'float32').reshape(*positions_SxT.shape, -1)
        for s, t in {(0, 0), (0, body.bptt_length - 1), (len(positions_SxT) - 1, body.bptt_length - 1)}:
            position = int(positions_SxT[s, t])
            # A state begins where the stream does; of a shuffled example it knows the last 32 words.
            first = int(first_S[s]) if body.trains_on_streams else position + 1 - (model.network.body.reach or 32)
            first -= model.network.body.lookback
            ids = [int(DATA.tokens_T[i]) if i >= 0 else 0 for i in range(first - 1, position)]
            output = model.network.features(model.params, jnp.array([ids]))
            features = {name: x[:, -1] for name, x in output.features.items()}
            expected_1xV = np.exp(model.network.output.log_probabilities(model.params, features))
            assert_close(p_SxTxV[s, t], expected_1xV[0], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize('student', ['nplm', 'lstm'])
@pytest.mark.parametrize('kind', KINDS)
def test_a_student_of_two_teachers_learns_their_mean(student, kind):
    """Its cross-entropy with the teachers' mean falls towards the entropy of that mean."""
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


@pytest.mark.parametrize('kind', KINDS)
def test_without_weight_the_updates_are_those_without_a_teacher(kind):
    changes = {**BODIES['lstm'], **KINDS[kind], 'output.teacher_weight': 0.0}
    taught, alone = make_run(changes, make_teacher(BODIES['nplm'])), make_run(changes)
    (one, one_nll), (other, other_nll) = (run_chunk(run.chunk(run.init_state(), 0)) for run in (taught, alone))
    assert_close((one.params, one_nll), (other.params, other_nll), rtol=1e-4, atol=1e-6)
