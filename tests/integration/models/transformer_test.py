"""Tests the Transformer: its formula in float64, its attention window, and its cache."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import loss_of, make_batch, make_network, refuses

from nplm_jax.data.stream import Span
from nplm_jax.models.neural import NeuralLanguageModel

V, M, K, H, R, LAYERS = 23, 6, 8, 2, 5, 2
WORDS_T = np.random.default_rng(0).integers(1, V, 1000)


def make(**changes):
    shape = {'model.m': M, 'model.h': K, 'model.layers': LAYERS, 'model.heads': H, 'model.memory': R}
    streams = {'model.family': 'transformer', 'model.direct': False, 'model.dropout': 0.0, 'model.precision': 'float32'}
    sizes = {'train.batch_size': 24, 'model.bptt_length': 12, 'model.expansion': 3}
    network = make_network(V, {**shape, **streams, **sizes, **changes})
    params = network.init(jax.random.key(0))
    random = iter(jax.random.split(jax.random.key(1), 99))
    return network, jax.tree.map(lambda x: x + 0.3 * jax.random.normal(next(random), x.shape), params)


def log_probabilities(network, params, ids):
    """Returns log P of every word after each of `ids`, by the formulas, in float64 and word by word."""
    params = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    norm = lambda z, g: g * (z - z.mean()) / np.sqrt(z.var() + 1e-5)  # noqa: E731
    gelu = lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))  # noqa: E731
    D, out = K // H, []
    angles = 10_000.0 ** (-np.arange(D // 2) / (D // 2))

    def turn(x, t):
        a, b = x[: D // 2], x[D // 2 :]
        return np.concatenate(
            [a * np.cos(t * angles) - b * np.sin(t * angles), a * np.sin(t * angles) + b * np.cos(t * angles)]
        )

    caches = [[] for _ in range(LAYERS)]
    for t, word in enumerate(ids):
        z = params['C_VxM'][word] @ params['E_PxK']
        for i, cache in enumerate(caches):
            layer = params['layers'][f'layer_{i}']
            q, k, v = np.split(norm(z, layer['g_attention_K']) @ layer['QKV_Kx3K'], 3)
            cache.append((t, k, v))
            del cache[: -R - 1]
            heads = []
            for h in range(H):
                mine = slice(h * D, (h + 1) * D)
                scores = [turn(q[mine], t) @ turn(k_s[mine], s) / D**0.5 for s, k_s, _ in cache]
                weights = np.exp(np.array(scores) - max(scores))
                heads.append(sum(w * v_s[mine] for w, (_, _, v_s) in zip(weights / weights.sum(), cache)))
            z = z + np.concatenate(heads) @ layer['O_KxK']
            z = z + gelu(norm(z, layer['g_K']) @ layer['A_KxF'] + layer['a_F']) @ layer['B_FxK']
        x = norm(z, params['g_K'])
        table = params['C_VxM'] if network.body.tied else params['U_VxK']
        y = params['b_V'] + table @ (x @ params['P_KxM'] if network.body.tied else x)
        out.append(y - np.log(np.exp(y - y.max()).sum()) - y.max())
    return np.array(out)


@pytest.mark.parametrize('changes', [{}, {'model.tied': True}], ids=str)
def test_it_is_the_formula_in_float64_on_a_thousand_words(changes):
    network, params = make(**changes)
    expected = log_probabilities(network, params, [0, *WORDS_T[:-1]])[np.arange(len(WORDS_T)), WORDS_T]
    found = NeuralLanguageModel(network, params).score(WORDS_T, Span(0, len(WORDS_T)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.nightly
def test_no_gradient_reaches_the_words_of_the_update_before():
    network, params = make()
    ids = WORDS_T[:24].reshape(2, 12)
    state = network.features(params, jnp.asarray(ids)).state
    floats = lambda layers: {**state, 'layers': layers}  # noqa: E731
    loss = lambda layers: loss_of(network, params, make_batch(ids, ids), floats(layers), jax.random.key(0))[0]  # noqa: E731
    assert not any(np.any(x) for x in jax.tree.leaves(jax.grad(loss)(state['layers'])))
    assert loss_of(network, params, make_batch(ids, ids), state)[0] != loss_of(network, params, make_batch(ids, ids))[0]


@pytest.mark.parametrize(
    'changes,message',
    [
        ({'model.heads': 3}, 'model.heads'),
        ({'model.memory': 0}, 'model.memory'),
    ],
)
def test_what_it_cannot_have_is_one_line(changes, message):
    with refuses(message):
        make(**changes)
