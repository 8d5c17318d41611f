"""Tests that adaptive models predict each word before they read it, according to the documented formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import features_of

from nplm_jax.apps.adaptive.adaptive_model import AdaptiveModel
from nplm_jax.data import batches
from nplm_jax.data.stream import Span
from tests.unit.apps.adaptive.adaptive_models import FAMILIES, MODELS, WORDS, dynamic, streams


@pytest.fixture(params=MODELS, scope='module')
def model(request):
    return MODELS[request.param]()


def test_a_permuted_future_changes_no_earlier_score(model):
    before = model.score(WORDS, Span(10, 390))
    for t in (57, 300):
        other = WORDS.copy()
        other[t:] = np.random.default_rng(t).permutation(other[t:])
        np.testing.assert_array_equal(model.score(other, Span(10, 390))[: t - 10], before[: t - 10])


def test_a_score_is_the_next_words_probability_and_these_sum_to_one(model):
    assert isinstance(model, AdaptiveModel)
    log_p_T = model.score(WORDS[:60], Span(0, 60))
    for t in (0, 1, 7, 23, 59):
        log_p_V = model.next_word(WORDS[None, :t])[0]
        assert np.exp(log_p_V).sum() == pytest.approx(1, abs=1e-5)
        assert log_p_V[WORDS[t]] == pytest.approx(log_p_T[t], abs=2e-5)


@pytest.mark.parametrize('anchor_rate', [0.0, 0.2])
@pytest.mark.parametrize('family', FAMILIES)
def test_dynamic_evaluation_is_its_formula(family, anchor_rate):
    model = dynamic(family, rate=0.05, decay=0.3, anchor_rate=anchor_rate)
    network, trained = model.model.network, model.model.params
    tokens = jnp.asarray(WORDS[:40])

    def loss(params, positions, carry):
        contexts, targets = batches.examples(tokens, positions, network.body.lookback + 1)
        features, carry = features_of(network, params, streams(network, contexts), carry)
        log_p = network.output.log_probabilities(params, features)[jnp.arange(len(targets)), targets]
        return -log_p.mean(), (log_p, carry)

    sizes = jax.tree.leaves(jax.tree.map(jnp.size, model.root_mean_squares))
    mean = sum(map(float, jax.tree.leaves(jax.tree.map(jnp.sum, model.root_mean_squares)))) / sum(sizes)
    gradients = jax.jit(jax.grad(loss, has_aux=True))
    params, anchor, carry, expected = trained, trained, network.body.start(1), []
    for first in range(0, 40, 5):
        grads, (log_p, carry) = gradients(params, jnp.arange(first, first + 5), carry)
        expected.append(log_p)
        params = jax.tree.map(
            lambda theta, theta_0, g, rms: theta
            - 0.05 * g / (rms + 10 * mean)
            + np.minimum(0.3 * rms / mean, 1) * (theta_0 - theta),
            params, anchor, grads, model.root_mean_squares,
        )  # fmt: skip
        anchor = jax.tree.map(lambda theta_0, theta: (1 - anchor_rate) * theta_0 + anchor_rate * theta, anchor, params)
    np.testing.assert_allclose(model.score(WORDS[:40], Span(0, 40)), np.concatenate(expected), rtol=1e-4, atol=1e-4)
