"""The recurrent networks: gradients against formulas, the state against one long pass, and the whole program."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import loop_test as one
import numpy as np
import pytest
from loop_test import DATA, changed, fit, fit_in_parts, same_bits

from configs import sentences
from nplm_jax import config as config_lib
from nplm_jax.config import RECURRENT, ModelSettings, OutputSettings
from nplm_jax.data import dataset
from nplm_jax.data.corpora import Span
from nplm_jax.inference import generation, scoring
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.models import mixture, nplm, recurrent
from nplm_jax.models.language_model import WARM_UP, NeuralLanguageModel, RecurrentLanguageModel
from nplm_jax.runs import experiment, loading
from nplm_jax.training import objective
from nplm_jax.utils.errors import BadInput

V, M, K = 13, 3, 5
TOKENS = jnp.asarray(np.random.default_rng(0).integers(0, V, 1500), jnp.int32)
PLAIN = OutputSettings(block_size=4)


def network(family, seed=0):
    params = recurrent.init(jax.random.key(seed), ModelSettings(m=M, h=K, family=family), V)
    return jax.tree.map(lambda x: 3 * x + 0.1, params)  # far from linear, and no bias is zero


def batch(streams=2, words=6):
    random = np.random.default_rng(1)
    return random.integers(0, V, (streams, words)), random.integers(0, V, (streams, words))


def state_of(family, streams=2):
    nothing = recurrent.begin(family, K, streams)
    return jax.tree.map(lambda x: jax.random.normal(jax.random.key(5), x.shape), nothing)


def loss_and_gradients(params, before_SxT, targets_SxT, state, **more):
    def loss(params):
        given = (before_SxT.reshape(-1, 1), targets_SxT.reshape(-1), state)
        return recurrent.nll(params, *given, None, 0.0, PLAIN, **more)[0]

    return jax.value_and_grad(loss)(params)


def by_hand(params, before_SxT, targets_SxT, h_SxK):
    """Mean NLL of the rnn and its gradients, by back-propagation through time as one writes it down, in float64."""
    C, W_h, W_e, b_1, U, b_2 = (
        np.asarray(x, np.float64)
        for x in (params.C_VxM, params.cell.W_h_KxK, params.cell.W_e_KxM, params.cell.b_1_K, params.U_VxK, params.b_V)
    )
    S, T = targets_SxT.shape
    d = {name: np.zeros_like(x) for name, x in dict(C=C, W_h=W_h, W_e=W_e, b_1=b_1, U=U, b_2=b_2).items()}
    total = 0.0
    for s in range(S):
        h = [np.asarray(h_SxK[s], np.float64)]
        errors = []
        for t in range(T):
            h.append(np.tanh(W_h @ h[-1] + W_e @ C[before_SxT[s, t]] + b_1))
            y = U @ h[-1] + b_2
            p = np.exp(y - y.max()) / np.exp(y - y.max()).sum()
            total -= np.log(p[targets_SxT[s, t]])
            p[targets_SxT[s, t]] -= 1
            errors.append(p)
        d_h = np.zeros_like(b_1)
        for t in reversed(range(T)):
            d['U'] += np.outer(errors[t], h[t + 1])
            d['b_2'] += errors[t]
            d_a = (U.T @ errors[t] + d_h) * (1 - h[t + 1] ** 2)
            d['W_h'] += np.outer(d_a, h[t])
            d['W_e'] += np.outer(d_a, C[before_SxT[s, t]])
            d['b_1'] += d_a
            d['C'][before_SxT[s, t]] += W_e.T @ d_a
            d_h = W_h.T @ d_a
    return total / (S * T), {name: x / (S * T) for name, x in d.items()}


def test_gradients_are_those_of_back_propagation_through_time():
    params, words, state = network('rnn'), batch(), state_of('rnn')
    loss, gradients = loss_and_gradients(params, *words, state)
    expected, by_name = by_hand(params, *words, state)
    assert float(loss) == pytest.approx(expected, rel=1e-6)
    cell = gradients.cell
    ours = dict(C=gradients.C_VxM, W_h=cell.W_h_KxK, W_e=cell.W_e_KxM, b_1=cell.b_1_K, U=gradients.U_VxK)
    for name, gradient in {**ours, 'b_2': gradients.b_V}.items():
        np.testing.assert_allclose(gradient, by_name[name], rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize('family', RECURRENT)
def test_gradients_are_those_of_the_unrolled_network(family):
    params, (before_SxT, targets_SxT), state = network(family), batch(), state_of(family)

    def unrolled(params):
        now, losses = state, []
        for t in range(before_SxT.shape[1]):
            now, h_SxK = recurrent.advance(params, now, params.C_VxM[before_SxT[:, t]])
            log_p_SxV = jax.nn.log_softmax(h_SxK @ params.U_VxK.T + params.b_V[None, :])
            losses.append(-log_p_SxV[jnp.arange(len(log_p_SxV)), targets_SxT[:, t]])
        return jnp.mean(jnp.stack(losses))

    loss, gradients = loss_and_gradients(params, before_SxT, targets_SxT, state)
    expected, theirs = jax.value_and_grad(unrolled)(params)
    assert float(loss) == pytest.approx(float(expected), rel=1e-6)
    for a, b in zip(jax.tree.leaves(gradients), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('family', RECURRENT)
def test_two_updates_carry_the_state_of_one_long_pass_and_no_gradient(family):
    params, (before_SxT, targets_SxT) = network(family), batch(words=8)
    nothing = recurrent.begin(family, K, 2)

    def run(params, state, start, stop):
        given = (before_SxT[:, start:stop].reshape(-1, 1), targets_SxT[:, start:stop].reshape(-1), state)
        return recurrent.nll(params, *given, None, 0.0, PLAIN)

    whole, end = run(params, nothing, 0, 8)
    first, middle = run(params, nothing, 0, 3)
    second, carried = run(params, middle, 3, 8)
    assert float(3 * first + 5 * second) == pytest.approx(8 * float(whole), rel=1e-6)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), carried, end)
    of_state = jax.grad(lambda state: run(params, state, 3, 8)[0])(middle)
    assert not any(np.any(x) for x in jax.tree.leaves(of_state))


@pytest.mark.parametrize('family', RECURRENT)
def test_evaluation_carries_the_state_as_one_unrolled_pass(family):
    model = RecurrentLanguageModel(network(family))
    params, now, expected = model.params, recurrent.begin(family, K, 1), []
    advance, log_p = jax.jit(recurrent.advance), jax.jit(recurrent.log_probabilities)
    for before, word in zip([0, *TOKENS[:599].tolist()], TOKENS[:600].tolist()):
        now, h_1xK = advance(params, now, params.C_VxM[before][None])
        expected.append(np.asarray(log_p(params, h_1xK))[0, word])
    found = model.score(TOKENS, Span(0, 600))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, np.asarray(expected), atol=1e-4)
    for start, stop in ((0, 1), (255, 257), (3, 512), (511, 600)):  # the words before a span are read too
        np.testing.assert_allclose(model.score(TOKENS, Span(start, stop)), expected[start:stop], atol=1e-4)
    for t in (0, 1, 15, 16, 100):
        log_p_V = model.next_word(np.asarray(TOKENS[:t])[None])[0]
        assert log_p_V[TOKENS[t]] == pytest.approx(float(expected[t]), abs=1e-4)
        assert np.exp(log_p_V.astype(np.float64)).sum() == pytest.approx(1, abs=1e-6)


def test_far_into_a_stream_the_words_just_before_the_span_are_read():
    model = RecurrentLanguageModel(network('gru'))
    start = 3 * WARM_UP // 2
    tail = np.asarray(TOKENS[start - WARM_UP - 1 : start + 50])
    expected = model.score(jnp.asarray(tail), Span(1, len(tail)))[WARM_UP:]
    np.testing.assert_allclose(model.score(TOKENS, Span(start, start + 50)), expected, atol=1e-3)


def test_streams_go_on_where_they_were():
    train, streams, bptt_length = Span(100, 1000), 4, 7
    order = np.asarray(dataset.stream_order(3, 0, train, streams, bptt_length)).reshape(-1, streams, bptt_length)
    assert order.shape[0] == 900 // 28
    assert len(np.unique(order)) == order.size and order.min() >= 100 and order.max() < 1000
    read = order.transpose(1, 0, 2).reshape(streams, -1)  # what each stream reads, update after update
    np.testing.assert_array_equal((read[:, 1:] - read[:, :-1]) % 900, 1)
    again = np.asarray(dataset.stream_order(3, 1, train, streams, bptt_length)).reshape(order.shape)
    assert not np.array_equal(order, again)  # another epoch starts elsewhere


def small(family, **train):
    how = dict(momentum=0.0, clip_norm=1.0, learning_rate=2.0)
    shape = dict(family=family, direct=False, h=16, m=8, dropout=0.0)
    return changed(model=shape, optimizer=how, train=dict(batch_size=12, bptt_length=4, **train))


SLOW_FAMILIES = [pytest.param(family, marks=pytest.mark.slow) for family in ('rnn', 'gru')]


@pytest.mark.parametrize('family', ['lstm', *SLOW_FAMILIES])
def test_training_learns(family, tmp_path):
    best, progress, _ = fit(small(family, epochs=30, patience=30), tmp_path)
    perplexity = evaluate(RecurrentLanguageModel(best), DATA.tokens_T, DATA.valid).perplexity
    assert perplexity < 5  # the source's own is 1.65; a unigram model reaches 17
    assert progress.best_valid_nll == pytest.approx(np.log(perplexity), rel=1e-6)


def test_stopped_and_resumed_is_bit_for_bit_the_same(tmp_path):
    how = dataclasses.replace(small('lstm'), model=dataclasses.replace(small('lstm').model, dropout=0.2))
    expected, _, whole = fit(how, tmp_path / 'whole')
    done, _ = fit_in_parts(how, tmp_path / 'parts', 4)
    assert same_bits(done[0], expected) and done[2].nll == whole.nll[len(whole.nll) - len(done[2].nll) :]


def test_an_epoch_starts_with_no_words_read():
    how = small('rnn')
    plan = one.make_schedule(how, DATA.train)
    state = one.training.init_state(how, len(DATA.vocabulary), None, plan.total_steps)
    order_T = dataset.stream_order(1, 0, DATA.train, how.streams, 4)
    train_step = jax.jit(one.training.train_step, static_argnums=(3, 4))
    for step, same in ((plan.steps_per_epoch, True), (plan.steps_per_epoch + 1, False)):
        losses = []
        for value in (0.0, 0.9):
            at = state.replace(step=jnp.int32(step), carry=jnp.full_like(state.carry, value))
            contexts, targets = dataset.windows(DATA.tokens_T, order_T[:12], 1)
            losses.append(float(train_step(at, contexts, targets, how, plan.total_steps)[1]))
        assert (losses[0] == losses[1]) == same


def test_dropout_is_off_the_path_from_state_to_state():
    params, (before_SxT, targets_SxT), state = network('rnn'), batch(), state_of('rnn')
    given = (before_SxT.reshape(-1, 1), targets_SxT.reshape(-1), state)
    kept = recurrent.nll(params, *given, None, 0.0, PLAIN)
    dropped = recurrent.nll(params.replace(C_VxM=0 * params.C_VxM), *given, jax.random.key(0), 0.5, PLAIN)
    plain = recurrent.nll(params.replace(C_VxM=0 * params.C_VxM), *given, None, 0.0, PLAIN)
    assert float(kept[0]) != float(dropped[0]) != float(plain[0])
    np.testing.assert_array_equal(dropped[1], plain[1])  # with nothing read, only dropped states could differ


def test_weights_decay_and_biases_do_not():
    params = network('lstm')
    gradients = jax.grad(objective.regulariser)(params, 0.5)
    for x, g in zip(jax.tree.leaves(params), jax.tree.leaves(gradients), strict=True):
        np.testing.assert_allclose(g, 0.5 * x if x.ndim > 1 else 0 * x, rtol=1e-6)


# --- what is done with them --------------------------------------------------------------------------------


@pytest.mark.parametrize('family', RECURRENT)
def test_generation_follows_the_protocol(family):
    class Wrapped:
        """The protocol and no more."""

        next_word = RecurrentLanguageModel(network(family)).next_word

    model, choice = RecurrentLanguageModel(network(family)), generation.Choice(temperature=0.8)
    prompt = np.array([4, 2, 7])
    expected = generation.sample(Wrapped(), prompt, 12, 5, choice, seed=3)
    np.testing.assert_array_equal(generation.sample(model, prompt, 12, 5, choice, seed=3), expected)
    ids_KxT, log_p_K = generation.beam(model, prompt, 3, 4)
    stream = jnp.asarray(np.concatenate([prompt, ids_KxT[0]]))
    assert model.score(stream, Span(3, 6)).sum() == pytest.approx(log_p_K[0], abs=1e-4)


@pytest.mark.parametrize('mixed', [False, True])
def test_lines_know_nothing_of_each_other(mixed):
    model = RecurrentLanguageModel(network('gru'))
    if mixed:
        model = mixture.equal([model, NeuralLanguageModel(nplm.init(jax.random.key(2), ModelSettings(4, M, K), V), 4)])
    lines = [np.asarray(TOKENS[a:b]) for a, b in ((0, 5), (5, 5), (5, 30), (30, 31), (2, 5))]
    scored = scoring.score(model, 4, lines, begin=[7])
    for line, found in zip(lines, scored):
        for t, word in enumerate(line):
            log_p_V = model.next_word(np.array([[7, *line[:t]]]))[0]
            assert found.log10_p_T[t] * scoring.LOG_10 == pytest.approx(log_p_V[word], abs=1e-4)
    if not mixed:
        assert scored[2].lengths_T.tolist() == list(range(2, 27))  # the mark before the line, and all of it
    stream = scoring.score(model, 4, lines)
    np.testing.assert_allclose(
        np.concatenate([x.log10_p_T for x in stream]) * scoring.LOG_10,
        model.score(np.concatenate(lines), Span(0, 34)),
        atol=1e-5,
    )


@pytest.mark.parametrize('family', RECURRENT)
def test_from_config_to_a_model_that_can_be_loaded(family, tmp_path):
    c = sentences.get_config()
    c.model.family, c.model.h, c.train.bptt_length, c.optimizer.clip_norm, c.train.epochs = family, 16, 2, 1.0, 100
    results = experiment.run(c, tmp_path / 'run')
    assert results['family'] == family and {'fixed', 'learned', 'by_frequency'} == set(results['mixture'])
    found, _, model = experiment.load(tmp_path / 'run')
    data = loading.prepare(found)
    again = evaluate(model, data.tokens_T, data.test).perplexity
    assert again == pytest.approx(results['perplexity']['test'], rel=1e-6) and again < 3


@pytest.mark.parametrize(
    'key,value,message',
    [
        ('model.direct', True, 'model.direct=True: must be False for model.family=gru'),
        ('train.bptt_length', 3, 'train.batch_size=4: must be a multiple of train.bptt_length=3'),
        ('train.bptt_length', 0, 'train.bptt_length=0: must be 1 or more'),
        ('output.kind', 'nce', 'output.kind=.nce.: must be full for model.family=gru'),
        ('optimizer.name', 'paper', 'optimizer.name=.paper.: must not be paper'),
    ],
)
def test_what_cannot_be_is_refused(key, value, message):
    c = sentences.get_config()
    c.model.family, c.train.bptt_length = 'gru', 2
    c.update_from_flattened_dict({key: value})
    with pytest.raises(BadInput, match=f'^{message}'):
        config_lib.from_config(c)
