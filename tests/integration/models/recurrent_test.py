"""Tests recurrent networks: gradients by formulas, the state after one long pass, and complete runs."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    DATA,
    check_resumed,
    features_of,
    first_batch,
    make_batch,
    others_nightly,
    small_settings,
)
from recurrent_networks import (
    FAMILIES,
    TOKENS,
    K,
    M,
    batch,
    loss,
    make,
    make_language_model,
    random_carry,
)

from configs import sentences
from nplm_jax.config import settings as config_lib
from nplm_jax.data.stream import Span
from nplm_jax.inference.perplexity import evaluate
from nplm_jax.models import recurrent, stream_body
from nplm_jax.models.neural import NeuralLanguageModel
from nplm_jax.nn import Keys
from nplm_jax.outputs.output_layer import View
from nplm_jax.runs import experiment, loading
from nplm_jax.runs.network_from_settings import network_from_settings
from nplm_jax.runs.training_from_settings import prepare_run
from nplm_jax.training import step
from nplm_jax.training.reporter import Reporter
from nplm_jax.training.train import fit, train


def test_no_two_masks_of_dropout_share_their_random_numbers(monkeypatch):
    network, params = make('rnn', dropout=0.5, **{'model.layers': 4, 'model.weight_dropout': 0.5})
    used, dropout, drop_weights = [], recurrent.dropout, recurrent.drop_weights
    for module in (recurrent, stream_body):
        record = lambda keys, *rest, **options: used.extend(keys.streams_S) or dropout(keys, *rest, **options)  # noqa: E731
        monkeypatch.setattr(module, 'dropout', record)
    monkeypatch.setattr(recurrent, 'drop_weights', lambda key, *rest: used.append(key) or drop_weights(key, *rest))
    read = lambda self, cell, carry, x_TxSxD, *_: (carry, jnp.ones((*x_TxSxD.shape[:2], self.h)))  # noqa: E731
    monkeypatch.setattr(recurrent.Recurrent, 'read', read)  # nothing to compile
    keys = Keys.of_streams(jax.random.key(0), jnp.arange(2))
    network.body.features(params, jnp.ones((2, 4, M)), network.body.start(2), keys)
    numbers = [tuple(jax.random.key_data(key).tolist()) for key in used]
    # Dropout of words, inputs, units between layers, and outputs of each stream, and of weights of each layer.
    assert len(numbers) == len(set(numbers)) == 2 * (1 + 1 + 3 + 1) + 4


@pytest.mark.parametrize('kind', ['full', 'nce'])
def test_an_update_without_any_words_features_learns_no_features(kind):
    changes = {'model.family': 'lstm', 'model.direct': False, 'train.batch_size': 8, 'model.bptt_length': 4}
    rule = {'optimizer.decay': 0.0, 'output.kind': kind, 'output.samples': 9}
    run = prepare_run(small_settings({**changes, **rule, 'model.word_dropout': 0.999999}), DATA)
    state, batch = run.init_state(), first_batch(run)
    after, _ = jax.jit(step.train_step, static_argnums=0)(run.program, state, batch)
    np.testing.assert_array_equal(after.params['C_VxM'], state.params['C_VxM'])
    assert np.any(after.params['b_V'] != state.params['b_V'])


def test_the_slowness_penalty_is_of_the_output_before_dropout():
    """The activation penalty applies to the output after dropout (Merity et al., section 4.4)."""
    network, params = make('gru', dropout=0.5, **{'model.activation_penalty': 2.0, 'model.slowness_penalty': 3.0})
    ids_SxL, keys = jnp.asarray(batch(words=4)[0]), Keys.of_streams(jax.random.key(0), jnp.arange(2))
    output = network.features(params, ids_SxL, network.body.start(2), keys)
    plain, _ = make('gru', dropout=0.5, **{'model.output_dropout': 0.0})
    h_SxTxK = plain.features(params, ids_SxL, plain.body.start(2), keys).features['U_VxK']
    dropped_SxTxK = output.features['U_VxK']
    assert np.any(dropped_SxTxK == 0) and not np.any(h_SxTxK == 0)
    expected = 2 * jnp.mean(dropped_SxTxK**2) + 3 * jnp.mean((h_SxTxK[:, 1:] - h_SxTxK[:, :-1]) ** 2)
    assert float(output.penalty) == pytest.approx(float(expected), rel=1e-5)


def test_penalties_are_a_part_of_the_loss_and_not_of_the_nll():
    penalties = {'model.activation_penalty': 2.0, 'model.slowness_penalty': 3.0}
    found = []
    before_SxT, targets_SxT = batch(words=4)
    for changes in ({}, penalties):
        network, params = make('gru', **changes)
        args = make_batch(before_SxT, targets_SxT), random_carry(network)
        value = lambda params: network.loss(View(params), *args)  # noqa: B023, E731
        found.append(jax.jit(jax.value_and_grad(value, has_aux=True))(params))
    ((nll, (same_nll, _)), grads), ((loss, (nll_with_penalties, _)), grads_with_penalties) = found
    assert nll == same_nll == nll_with_penalties

    def penalty(params):
        features, _ = features_of(network, params, jnp.asarray(before_SxT), random_carry(network))
        h_SxTxK = features['U_VxK'].reshape(2, 4, K)
        return 2 * jnp.mean(h_SxTxK**2) + 3 * jnp.mean((h_SxTxK[:, 1:] - h_SxTxK[:, :-1]) ** 2)

    value, gradient = jax.jit(jax.value_and_grad(penalty))(params)
    assert float(loss) == pytest.approx(float(nll + value), rel=1e-6)
    expected = jax.tree.map(jnp.add, grads, gradient)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), grads_with_penalties, expected)


@pytest.mark.parametrize('family', FAMILIES)
def test_gradients_are_those_of_the_unrolled_network(family):
    network, params = make(family)
    (before_SxT, targets_SxT), start = batch(), random_carry(network)

    def unrolled(params):
        (carry,), losses = start, []
        for t in range(before_SxT.shape[1]):
            e_1xSxM = params['C_VxM'][before_SxT[None, :, t]]
            carry, h_1xSxK = network.body.read(params['cell'], carry, e_1xSxM, 'float32')
            log_p_SxV = jax.nn.log_softmax(h_1xSxK[0] @ params['U_VxK'].T + params['b_V'][None, :])
            losses.append(-log_p_SxV[jnp.arange(len(log_p_SxV)), targets_SxT[:, t]])
        return jnp.mean(jnp.stack(losses))

    nll, grads = jax.jit(jax.value_and_grad(lambda p: loss(network, p, before_SxT, targets_SxT, start)[0]))(params)
    expected_nll, expected = jax.jit(jax.value_and_grad(unrolled))(params)
    assert float(nll) == pytest.approx(float(expected_nll), rel=1e-6)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6), grads, expected)


@pytest.mark.nightly
@pytest.mark.parametrize('family', [*FAMILIES, 'mogrifier', 'attentive_mogrifier'])
def test_precision_is_that_of_every_product_of_the_body_in_training_alone(family):
    words, e_SxLxM = batch(), jnp.ones((2, 6, M))

    def factors(precision, keys):
        """Returns the types of the factors of all products that JAX passes to XLA."""
        network, params = make(family, **{'model.precision': precision, 'model.layers': 2, 'model.tied': True})

        def total(params):
            output = network.body.features(params, e_SxLxM, network.body.start(2), keys)
            return sum(x.sum() for x in jax.tree.leaves((output.features, output.state)))

        text = jax.jit(jax.grad(total)).lower(params).as_text()
        return set(re.findall(r'dot_general.*: \(tensor<(?:\d+x)*(\w+)>, tensor<(?:\d+x)*(\w+)>\)', text))

    key = jax.random.key(0)
    assert factors('bfloat16', keys := Keys.of_streams(key, jnp.arange(2))) == {('bf16', 'bf16')}
    assert factors('float32', keys) == factors('bfloat16', None) == {('f32', 'f32')}

    results = []
    for precision in ('float32', 'bfloat16'):
        network, params = make(family, **{'model.precision': precision})
        value = lambda p: loss(network, p, *words, random_carry(network), key)[0]  # noqa: B023, E731
        results.append(jax.tree.leaves(jax.jit(jax.value_and_grad(value))(params)))
    share = 0.06 if family == 'attentive_mogrifier' else 0.03  # its weights of words amplify rounding errors
    for exact, rounded in zip(*results, strict=True):
        np.testing.assert_allclose(rounded, exact, rtol=0.03, atol=share * float(jnp.abs(exact).max()))
    assert any(np.any(a != b) for a, b in zip(*results))


@pytest.mark.parametrize('family', FAMILIES)
def test_evaluation_carries_the_state_as_one_unrolled_pass(family):
    model = make_language_model(family)
    assert model.n is None
    network, params = model.network, model.params
    read = jax.jit(lambda word, carry: features_of(network, params, word, carry))
    log_probabilities = jax.jit(lambda features: network.output.log_probabilities(params, features))
    carry, expected = network.body.start(1), []
    for before, word in zip([0, *TOKENS[:599].tolist()], TOKENS[:600].tolist()):
        features, carry = read(jnp.asarray([[before]]), carry)
        expected.append(np.asarray(log_probabilities(features))[0, word])
    log_p_T = model.score(TOKENS, Span(0, 600))
    assert log_p_T.dtype == np.float32
    np.testing.assert_allclose(log_p_T, np.asarray(expected), atol=1e-4)
    for start, stop in ((0, 1), (255, 257), (3, 512), (511, 600)):  # the words before a span are also read
        np.testing.assert_allclose(model.score(TOKENS, Span(start, stop)), expected[start:stop], atol=1e-4)
    for t in (0, 1, 15, 16, 100):
        log_p_V = model.next_word(np.asarray(TOKENS[:t])[None])[0]
        assert log_p_V[TOKENS[t]] == pytest.approx(float(expected[t]), abs=1e-4)
        assert np.exp(log_p_V.astype(np.float64)).sum() == pytest.approx(1, abs=1e-6)


def settings_of(family, **changes):
    model = {'model.family': family, 'model.direct': False, 'model.h': 16, 'model.m': 8, 'model.dropout': 0.0}
    optimizer = {'optimizer.clip_norm': 1.0, 'optimizer.learning_rate': 2.0}
    return small_settings({**model, **optimizer, 'train.batch_size': 12, 'model.bptt_length': 4, **changes})


@pytest.mark.parametrize('family', others_nightly(FAMILIES, ('lstm',)))
def test_training_learns(family):
    settings = settings_of(family, **{'train.epochs': 30, 'train.patience': 30, 'train.steps_per_execution': 18})
    best, _, progress = fit(train(prepare_run(settings, DATA), None, Reporter()))
    model = NeuralLanguageModel(network_from_settings(settings, len(DATA.vocabulary)), best)
    perplexity = evaluate(model, DATA.tokens_T, DATA.valid).perplexity
    assert perplexity < 5  # the source's own is 1.65; a unigram model reaches 17
    assert progress.best_valid_nll == pytest.approx(np.log(perplexity), rel=1e-6)


def test_stopped_and_resumed_is_bit_for_bit_the_same(tmp_path):
    check_resumed(settings_of('lstm', **{'model.dropout': 0.2}), tmp_path, 5)


@pytest.mark.parametrize('family', others_nightly(FAMILIES, ('lstm',)))
def test_from_config_to_a_model_that_can_be_loaded(family, tmp_path):
    changes = {'model.h': 16, 'model.bptt_length': 2, 'optimizer.clip_norm': 1.0, 'train.epochs': 100}
    c = config_lib.override(sentences.get_config(), {'model.family': family, **changes})
    results = experiment.run(c, tmp_path / 'run')
    assert results['family'] == family and {'fixed', 'learned', 'by_frequency'} == set(results['mixture'])
    loaded = experiment.load(tmp_path / 'run')
    settings, model = loaded.settings, loaded.model
    data = loading.load_dataset(settings)
    perplexity = evaluate(model, data.tokens_T, data.test).perplexity
    assert perplexity == pytest.approx(results['perplexity']['test'], rel=1e-6) and perplexity < 3
