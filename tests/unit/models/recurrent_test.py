"""Tests recurrent networks: gradients by formulas, the state after one long pass, and complete runs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from helpers import (
    make_model,
    make_network,
    refuses,
)
from recurrent_networks import (
    FAMILIES,
    TOKENS,
    M,
    V,
    batch,
    loss,
    make,
    make_language_model,
    random_carry,
)

from configs import sentences
from nplm_jax.config import settings as config_lib
from nplm_jax.data.line_start import LineStart
from nplm_jax.data.stream import Span
from nplm_jax.inference import beam_search, generation, scoring
from nplm_jax.models import mixture, recurrent
from nplm_jax.models.language_model import LanguageModel
from nplm_jax.nn import Keys
from nplm_jax.runs import experiment
from nplm_jax.training.transformations import add_weight_decay

LOSS = jax.jit(loss, static_argnums=0)


@pytest.mark.parametrize(
    'changes,message',
    [
        ({'model.slowness_penalty': 1.0, 'model.bptt_length': 1}, 'model.bptt_length'),
        ({'model.family': 'residual', 'model.n': 2, 'model.averages': 0}, 'model.averages'),
        ({'model.h': 0}, 'model.h'),
        # Layer normalization maps a single unit to 0, so the predictions would not depend on the context.
        ({'model.family': 'residual', 'model.h': 1}, 'model.h'),
        ({'model.family': 'transformer', 'model.h': 1, 'model.heads': 1}, 'model.h'),
        ({'model.family': 'transformer_n', 'model.h': 1, 'model.heads': 1}, 'model.h'),
        # A head with a single unit cannot be rotated, so the predictions would not depend on the order of the words.
        ({'model.family': 'transformer', 'model.h': 4, 'model.heads': 4}, 'model.heads'),
    ],
)
def test_what_a_body_cannot_have_is_one_line(changes, message):
    with refuses(message):
        make_network(
            V, {'model.family': 'lstm', 'model.direct': False, 'train.batch_size': 8, 'model.bptt_length': 4, **changes}
        )


@pytest.mark.parametrize('family,layers', [('rnn', 1), ('mogrifier', 2)])
def test_no_two_initial_matrices_share_their_random_numbers(family, layers):
    changes = {'model.family': family, 'model.layers': layers, 'model.m': 6, 'model.h': 8, 'model.tied': True}
    params = flatten_dict(make_network(V, changes).init(jax.random.key(0)), sep='.')
    assert 'P_KxM' in params
    matrices = [np.ravel(x)[:36] for x in params.values() if x.ndim > 1]
    assert np.abs(np.corrcoef(matrices) - np.eye(len(matrices))).max() < 0.9


def test_each_place_has_its_dropout_rate(monkeypatch):
    rates = {'model.output_dropout': 0.3, 'model.weight_dropout': 0.4}
    network, params = make('gru', dropout=0.1, **{'model.layers': 2, **rates})
    used, dropout = [], recurrent.dropout
    monkeypatch.setattr(
        recurrent,
        'dropout',
        lambda key, x, rate, *rest, **more: used.append(rate) or dropout(key, x, rate, *rest, **more),
    )
    keys = Keys.of_streams(jax.random.key(0), jnp.arange(2))
    network.body.features(params, jnp.ones((2, 4, M)), network.body.start(2), keys)
    assert used == [0.1, 0.1, 0.3]
    assert make('gru', dropout=0.5)[0].body.output_rate == 0.5


@pytest.mark.parametrize('family', FAMILIES)
def test_weight_dropout_zeroes_weights_from_the_state_to_itself_alone(family):
    network, params = make(family)
    dropped = recurrent._drop_recurrent_weights(Keys.of_streams(jax.random.key(0), jnp.arange(2)), params['cell'], 0.5)
    flat, dropped = (flatten_dict(cell, sep='.') for cell in (params['cell'], dropped))
    for name, weight in flat.items():
        if name == 'W_h_KxK' or name.startswith('h') and name.endswith('kernel'):
            share = float((dropped[name] == 0).mean())
            assert 0.1 < share < 0.9
            np.testing.assert_allclose(dropped[name], np.where(dropped[name] == 0, 0, 2 * weight), rtol=1e-6)
        else:
            np.testing.assert_array_equal(dropped[name], weight)


def back_propagation_through_time(params, before_SxT, targets_SxT, h_SxK):
    """Returns the mean NLL of the rnn and its gradients, from formulas derived by hand, in float64."""
    C, U, b_2 = (np.asarray(params[name], np.float64) for name in ('C_VxM', 'U_VxK', 'b_V'))
    W_h, W_e, b_1 = (np.asarray(params['cell'][name], np.float64) for name in ('W_h_KxK', 'W_e_KxM', 'b_1_K'))
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


def test_gradients_of_the_rnn_are_those_of_back_propagation_through_time():
    network, params = make('rnn')
    words, carry = batch(), random_carry(network)
    nll, grads = jax.jit(jax.value_and_grad(lambda p: loss(network, p, *words, carry)[0]))(params)
    expected_nll, expected = back_propagation_through_time(params, *words, *carry)
    assert float(nll) == pytest.approx(expected_nll, rel=1e-6)
    cell = grads['cell']
    by_name = dict(C=grads['C_VxM'], W_h=cell['W_h_KxK'], W_e=cell['W_e_KxM'], b_1=cell['b_1_K'], U=grads['U_VxK'])
    for name, grad in {**by_name, 'b_2': grads['b_V']}.items():
        np.testing.assert_allclose(grad, expected[name], rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize('family', FAMILIES)
def test_two_updates_carry_the_state_of_one_long_pass_and_no_gradient(family):
    network, params = make(family)
    before_SxT, targets_SxT = batch(words=8)

    def run(carry, start, stop):
        return LOSS(network, params, before_SxT[:, start:stop], targets_SxT[:, start:stop], carry)

    long, end = run(network.body.start(2), 0, 8)
    first, middle = run(network.body.start(2), 0, 3)
    second, carried = run(middle, 3, 8)
    assert float(3 * first + 5 * second) == pytest.approx(8 * float(long), rel=1e-6)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), carried, end)
    grads = jax.grad(lambda carry: run(carry, 3, 8)[0])(middle)
    assert not any(np.any(x) for x in jax.tree.leaves(grads))


@pytest.mark.parametrize('family,changes', [('gru', {}), ('attentive_mogrifier', {'model.memory': 600})])
def test_a_span_far_into_a_stream_is_scored_as_in_the_whole_stream(family, changes):
    model, start = make_language_model(family, **changes), 1300
    assert start > model.network.body.burn_in
    expected = model.score(TOKENS)[start : start + 50]
    np.testing.assert_allclose(model.score(TOKENS, Span(start, start + 50)), expected, atol=1e-4)


def test_streams_continue_where_the_update_before_left_them():
    body, train_span = make('gru')[0].body, Span(100, 1000)  # 4 words per update
    positions = np.asarray(body.layout.epoch_positions(3, 0, train_span, 16)).reshape(
        -1, body.layout.num_streams(16), 4
    )
    assert positions.shape == (900 // 16, 4, 4)
    assert len(np.unique(positions)) == positions.size and positions.min() >= 100 and positions.max() < 1000
    read = positions.transpose(1, 0, 2).reshape(4, -1)  # the words that each stream reads in successive updates
    np.testing.assert_array_equal((read[:, 1:] - read[:, :-1]) % 900, 1)
    second_epoch = np.asarray(body.layout.epoch_positions(3, 1, train_span, 16)).reshape(positions.shape)
    assert not np.array_equal(positions, second_epoch)  # it starts elsewhere


def test_dropout_is_off_the_path_from_state_to_state():
    network, params = make('rnn', dropout=0.5)
    words, carry = batch(), random_carry(network)
    nothing_read = params | {'C_VxM': 0 * params['C_VxM']}
    kept, _ = LOSS(network, params, *words, carry)
    dropped, dropped_carry = LOSS(network, nothing_read, *words, carry, jax.random.key(0))
    without_key, expected_carry = LOSS(network, nothing_read, *words, carry)
    assert float(kept) != float(dropped) != float(without_key)
    np.testing.assert_array_equal(dropped_carry, expected_carry)  # initially, only dropped states could differ


def test_weights_decay_and_biases_do_not():
    _, params = make('lstm')
    link, grads = add_weight_decay(0.5), jax.tree.map(jnp.zeros_like, params)
    decayed, _ = link.update(grads, link.init(params), params)
    for x, grad in zip(jax.tree.leaves(params), jax.tree.leaves(decayed), strict=True):
        np.testing.assert_allclose(grad, 0.5 * x if x.ndim > 1 else 0 * x, rtol=1e-6)


# --- what is done with them --------------------------------------------------------------------------------


class Wrapped(LanguageModel):
    """A model with only the `next_word` of another, without its faster methods."""

    n = None

    def __init__(self, model):
        self.model = model

    def score_span(self, tokens_T, span):
        raise NotImplementedError

    def next_word(self, contexts_BxN):
        return self.model.next_word(contexts_BxN)


@pytest.mark.parametrize('family', FAMILIES)
def test_generation_with_a_carried_state_equals_reading_everything_again(family):
    model, choice = make_language_model(family), generation.Choice(temperature=0.8)
    prompt = np.array([4, 2, 7])
    expected = generation.sample(Wrapped(model), prompt, 12, 5, choice, seed=3)
    np.testing.assert_array_equal(generation.sample(model, prompt, 12, 5, choice, seed=3), expected)
    ids_KxT, log_p_K = beam_search.beam(model, prompt, 3, 4)
    stream = jnp.asarray(np.concatenate([prompt, ids_KxT[0]]))
    assert model.score(stream, Span(3, 6)).sum() == pytest.approx(log_p_K[0], abs=1e-4)


@pytest.mark.parametrize('mixed', [False, True])
def test_lines_know_nothing_of_each_other(mixed):
    model = make_language_model('gru')
    if mixed:
        model = mixture.equal([model, make_model(V, seed=2)])
    lines = [np.asarray(TOKENS[a:b]) for a, b in ((0, 5), (5, 5), (5, 30), (30, 31), (2, 5))]
    scored = scoring.score(model, lines, LineStart((7,)))
    for line, scores in zip(lines, scored, strict=True):
        for t, word in enumerate(line):
            log_p_V = model.next_word(np.array([[7, *line[:t]]]))[0]
            assert scores.log10_p_T[t] * scoring.LOG_10 == pytest.approx(log_p_V[word], abs=1e-4)
    if not mixed:
        assert scored[2].lengths_T.tolist() == list(range(2, 27))  # the word before the line, and the whole line
    stream = scoring.score(model, lines, stream=True)
    np.testing.assert_allclose(
        np.concatenate([x.log10_p_T for x in stream]) * scoring.LOG_10,
        model.score(np.concatenate(lines), Span(0, 34)),
        atol=1e-5,
    )


@pytest.mark.parametrize(
    'key,value,refused',
    [
        ('model.direct', True, 'model.direct'),
        ('model.h', 0, 'model.h'),
        ('model.bptt_length', 3, 'train.batch_size'),
        ('model.bptt_length', 0, 'model.bptt_length'),
        ('optimizer.name', 'paper', 'optimizer.name'),
    ],
)
def test_what_cannot_be_is_refused(key, value, refused):
    c = sentences.get_config()
    c = config_lib.override(c, {'model.family': 'gru', 'model.bptt_length': 2})
    with refuses(refused):
        experiment.load_settings(config_lib.override(c, {key: value}))
