"""Compares the Mogrifier LSTM with its formulas, implemented as loops around Flax's LSTM cell."""

import functools

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_network, refuses, same_bits, small_settings, train, train_in_parts

from nplm_jax.data.stream import Span
from nplm_jax.models.mogrifier import Mogrifier
from nplm_jax.models.neural import NeuralLanguageModel

V, M, K, T, S = 13, 7, 5, 4, 2
CHANGES = {'model.family': 'mogrifier', 'model.direct': False, 'train.batch_size': 8, 'model.bptt_length': 4}
CLOSE = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)


def make_body(rounds):
    return make_network(V, {**CHANGES, 'model.m': M, 'model.h': K, 'model.rounds': rounds}).body


def make_inputs(body, scale=3.0):
    cell = jax.tree.map(lambda x: scale * x + 0.1, body.init_cell(jax.random.key(0), M))
    c_SxK, h_SxK, x_TxSxM, weights_TxSxK = (
        jax.random.normal(jax.random.key(i), shape) for i, shape in enumerate([(S, K), (S, K), (T, S, M), (T, S, K)])
    )
    return (cell, (c_SxK, h_SxK), x_TxSxM), weights_TxSxK


def read_by_formulas(rounds, cell, carry, x_TxSxM):
    lstm = flax.linen.OptimizedLSTMCell(K)
    lstm_params = {name: weight for name, weight in cell.items() if name[0] in 'ih'}
    outputs = []
    for x in x_TxSxM:
        c, h = carry
        for i in range(1, rounds + 1):
            if i % 2:
                x = 2 * jax.nn.sigmoid(h @ cell[f'Q_{i}_KxD']) * x
            else:
                h = 2 * jax.nn.sigmoid(x @ cell[f'R_{i}_DxK']) * h
        carry, h = lstm.apply({'params': lstm_params}, (c, h), x)
        outputs.append(h)
    return carry, jnp.stack(outputs)


def value_and_gradients(read, inputs, weights_TxSxK):
    """Returns a number that depends on every output, and its gradients for the parameters, the carry and the inputs."""

    def value(cell, carry, x_TxSxM):
        (c_SxK, _), h_TxSxK = read(cell, carry, x_TxSxM)
        return jnp.sum(h_TxSxK * weights_TxSxK) + jnp.sum(c_SxK**2)

    return jax.jit(jax.value_and_grad(value, (0, 1, 2)))(*inputs)


@pytest.mark.parametrize('rounds', [1, 2, 5])
def test_outputs_and_gradients_are_those_of_the_formulas(rounds):
    body = make_body(rounds)
    inputs, weights_TxSxK = make_inputs(body)
    actual = value_and_gradients(lambda *args: body.read(*args, 'float32'), inputs, weights_TxSxK)
    expected = value_and_gradients(functools.partial(read_by_formulas, rounds), inputs, weights_TxSxK)
    jax.tree.map(CLOSE, actual, expected)


def test_bfloat16_rounds_factors_alone():
    body = make_body(5)
    inputs, weights_TxSxK = make_inputs(body, scale=1.0)
    exact, rounded = (
        value_and_gradients(lambda *args: body.read(*args, precision), inputs, weights_TxSxK)  # noqa: B023
        for precision in ('float32', 'bfloat16')
    )
    assert exact[0] != rounded[0]
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=0.05, atol=0.05), rounded, exact)


def test_a_word_at_a_time_is_the_same_as_all_at_once():
    body = make_body(3)
    (cell, carry, x_TxSxM), _ = make_inputs(body)
    end, h_TxSxK = body.read(cell, carry, x_TxSxM, 'float32')
    for t in range(T):
        carry, h_1xSxK = body.read(cell, carry, x_TxSxM[t : t + 1], 'float32')
        CLOSE(h_1xSxK[0], h_TxSxK[t])
    jax.tree.map(CLOSE, carry, end)


def test_no_later_word_changes_a_probability():
    changes = {**CHANGES, 'model.layers': 2, 'model.tied': True, 'model.m': M, 'model.h': K}
    network = make_network(V, changes)
    params = jax.tree.map(lambda x: 3 * x + 0.1, network.init(jax.random.key(0)))
    model, words_T = NeuralLanguageModel(network, params), np.random.default_rng(1).integers(1, V, 40)
    other_T = np.where(np.arange(40) == 20, (words_T + 1) % V, words_T)
    differs_T = np.abs(model.score(other_T, Span(0, 40)) - model.score(words_T, Span(0, 40))) > 1e-7
    assert not differs_T[:20].any() and differs_T[20:].all()


@pytest.mark.nightly
def test_stopped_and_resumed_is_bit_for_bit_the_same(tmp_path):
    settings = small_settings({**CHANGES, 'model.m': 8, 'model.h': 8, 'model.dropout': 0.2, 'train.batch_size': 12})
    expected, _, _ = train(settings, tmp_path / 'uninterrupted')
    (best, _, _), _ = train_in_parts(settings, tmp_path / 'parts', 5)
    assert same_bits(best, expected)


@pytest.mark.parametrize('rounds', [0, 17])
def test_impossible_rounds_are_one_line(rounds):
    with refuses('model.rounds'):
        make_network(V, {**CHANGES, 'model.rounds': rounds})


def test_the_rounds_take_turns():
    assert [name[0] for name in make_body(5).round_names] == list('QRQRQ')
    assert isinstance(make_body(1), Mogrifier)
